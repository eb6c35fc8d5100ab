"""The program is a real ``__main__``: it cannot tell that it was not started by Python alone."""

from __future__ import annotations

from pathlib import Path

from launched import alone, under_cold_run, under_run, write

WHAT_MAIN_SEES = """
    import os, pickle, sys
    import sibling

    class Config:
        rate = 0.5

    def main():
        with open("config.pickle", "wb") as out:
            pickle.dump(Config(), out)
        with open("config.pickle", "rb") as saved:
            print("unpickled", type(pickle.load(saved)) is Config)
        print("argv", sys.argv)
        print("path", sys.path[0])
        print("sibling", sibling.NAME)
        print("cwd", os.getcwd(), open("data.txt").read())
        print("main", sys.modules["__main__"].__dict__ is globals())
        print("file", __file__)
        print("package", __package__, "spec", __spec__ and (__spec__.name, __spec__.origin))
        print("loader", type(__loader__).__name__, "doc", __doc__, "cached", __cached__)
        print("names", sorted(name for name in globals() if name.startswith("__")))

    if __name__ == "__main__":
        main()
"""


def test_a_script_sees_what_it_sees_under_python(tmp_path: Path) -> None:
    write(tmp_path, "data.txt", "here")
    write(tmp_path, "code/sibling.py", "NAME = 'beside the script'")
    write(tmp_path, "code/train.py", WHAT_MAIN_SEES)
    words = ["code/train.py", "--help", "-m", "x", "--lr=0.1", "--", "--wait", "3"]
    plain = alone(*words, cwd=tmp_path)
    ours = under_cold_run("--run-dir=out", "--sync", "off", *words, cwd=tmp_path)
    assert plain.status == ours.status == 0, ours.err
    assert "unpickled True" in plain.out
    assert ours.out == plain.out


def test_a_module_sees_what_it_sees_under_python(tmp_path: Path) -> None:
    write(tmp_path, "data.txt", "here")
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/near.py", "NAME = 'relative'")
    program = WHAT_MAIN_SEES.replace("import sibling", "from . import near as sibling")
    write(tmp_path, "pack/train.py", program)
    for words in (["-m", "pack.train", "--help"], ["-m", "pack.train"]):
        plain = alone(*words, cwd=tmp_path)
        ours = under_run(*words, cwd=tmp_path)
        assert plain.status == ours.status == 0, ours.err
        assert "sibling relative" in plain.out
        assert ours.out == plain.out


def test_a_package_runs_its_main(tmp_path: Path) -> None:
    write(tmp_path, "data.txt", "here")
    write(tmp_path, "sibling.py", "NAME = 'in the working directory'")
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/__main__.py", WHAT_MAIN_SEES)
    plain = alone("-m", "pack", "a", cwd=tmp_path)
    ours = under_run("-m", "pack", "a", cwd=tmp_path)
    assert plain.status == ours.status == 0, ours.err
    assert ours.out == plain.out
    assert (tmp_path / "runs" / "pack" / "run.json").is_file()


def test_a_linked_script_finds_the_siblings_of_the_real_one(tmp_path: Path) -> None:
    write(tmp_path, "data.txt", "here")
    write(tmp_path, "real/sibling.py", "NAME = 'beside the real file'")
    (tmp_path / "train.py").symlink_to(write(tmp_path, "real/train.py", WHAT_MAIN_SEES))
    plain = alone("train.py", cwd=tmp_path)
    ours = under_run("train.py", cwd=tmp_path)
    assert plain.status == ours.status == 0, ours.err
    assert ours.out == plain.out


WORKERS = """
    import multiprocessing, os, sys
    import torch

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, at):
            return torch.tensor([at * at, instrumented()])

    def instrumented():
        call = torch.nn.Module.__call__
        return int("trainscope" in getattr(call, "__code__").co_filename)

    def work(queue, number):
        queue.put((number, __name__, "trainscope" in sys.modules, instrumented()))

    if __name__ == "__main__":
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            queue = context.Queue()
            process = context.Process(target=work, args=(queue, 7))
            process.start()
            print(method, queue.get(timeout=60))
            process.join()
            loader = torch.utils.data.DataLoader(
                Squares(), num_workers=1, multiprocessing_context=method
            )
            print(method, [batch.tolist() for batch in loader])
        loader = torch.utils.data.DataLoader(Squares(), num_workers=2)
        print("default", [batch[0, 0].item() for batch in loader])
"""


def test_child_processes_work_and_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "train.py", WORKERS)
    ours = under_run("--sync", "off", "train.py", cwd=tmp_path)
    assert ours.status == 0, ours.err
    squares = [[[0, 0]], [[1, 0]], [[4, 0]], [[9, 0]]]
    assert ours.out.splitlines() == [
        "spawn (7, '__mp_main__', False, 0)",
        f"spawn {squares}",
        "forkserver (7, '__mp_main__', False, 0)",
        f"forkserver {squares}",
        "default [0, 1, 4, 9]",
    ]
    assert ours.err.count("the files are in") == 1
