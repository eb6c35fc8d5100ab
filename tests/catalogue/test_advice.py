"""Advice: the exact words for a kind at a place."""

from __future__ import annotations

import itertools

import pytest

from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS

LOG = "keep it on the GPU: scope.log(name=tensor) writes the value later, without a wait"
TOTAL = "add on the GPU (total += value.detach()) and read the total once, when it is shown"
COLLECT = "collect value.detach() and read all at the end: torch.stack(values).tolist()"
NEEDED = (
    "the program goes on with this value, so it has to be read: read it as late as it can be, "
    "all values in one copy, or for several environments or samples in one batch"
)
OTHER = (
    "keep the value on the GPU, and read it only on the steps that use it; several values: "
    "one .tolist()"
)
RETURNED = (
    "return the tensor, and read it where its number is needed: a loss to be shown can wait, an "
    "action for an environment has to be read"
)
NONFINITE = "scope.log names a non-finite value and its step; torch.where skips it on the GPU"
BRANCH = "torch.where chooses on the GPU; where Python must branch, test it every N steps"
ASSERT = "torch._assert_async tests it on the GPU without a wait; or test it every N steps"
PIN = (
    "copy from pinned memory without waiting: pin_memory=True in the DataLoader (or "
    ".pin_memory()) and non_blocking=True"
)
TO_PINNED = "copy into a pinned tensor with non_blocking=True, and read it after an event"
WHERE = "keep the mask: torch.where(mask, x, other), or a masked sum and mean"
ASSIGN = (
    "assign on the GPU: x = torch.where(mask, value, x), or x.masked_fill_(mask, number); values "
    "for the set places alone: x.masked_scatter_(mask, values)"
)
MAKE_THERE = "make it on the GPU: pass device=device to the function that makes it"
RANDOM = " (random numbers then come from the GPU's generator, and are others)"
CLAMP = "x.clamp(min=number), or torch.maximum(x, y), chooses on the GPU"
TOGETHER = "keep the values on the GPU, and read them only on the steps that use them"
NUMBER = (
    "a size or the end of a slice is a number of the CPU: keep a copy of it there, such as the "
    "lengths before they were moved, or work with all values and a mask"
)
INDEX = (
    "make the index a GPU tensor once: torch.as_tensor(index, device=device), or make it there, "
    "as torch.randperm(n, device=device) does"
)
SCALER = (
    "GradScaler itself reads, once a step, whether a gradient overflowed: bfloat16 needs no "
    "scaler; with float16 there is nothing to remove"
)
FILL = (
    "fill on the GPU, without a copy: x.index_fill_(0, index, number), masked_fill_ or "
    "torch.where, and x[i:i+1] = number for one element; or store a tensor made there once"
)
FULL = "torch.full((), value, device=device) fills it on the GPU, without a copy"
KNOWN_SIZE = "keep the mask, or torch.nonzero_static(mask, size=n) with a known bound"


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("item", "print(step, loss.item())", LOG),
        ("item", "wandb.log({'loss': loss.item()}, step=step)", LOG),
        ("item", 'pbar.set_postfix(loss=f"{loss.item():.3f}")', LOG),
        ("item", 'writer.add_scalar("loss", loss.item(), step)', LOG),
        ("repr", "print(loss)", LOG),
        ("format", 'q.debug(f"{loss}")', LOG),
        ("item", "running += loss.item()", TOTAL),
        ("float", "total += float(loss)", TOTAL),
        ("item", "losses.append(loss.item())", COLLECT),
        ("item", "losses += [loss.item()]", COLLECT),
        ("item", "loss.backward(); running += loss.item(); optimizer.step()", TOTAL),
        ("item", "obs, reward = env.step(action.item())", NEEDED),
        ("numpy", "obs = env.step(action.cpu().numpy())", NEEDED),
        ("cpu", "obs = env.step(action.cpu().numpy())", NEEDED),
        ("item", "row = table[best.item()]", NEEDED),
        ("index", "row = names[best.item()]", NEEDED),
        ("tolist", "text = tokenizer.decode(ids.tolist())", NEEDED),
        ("item", "if loss.item() > 1e9:", BRANCH),
        ("bool", "if row.any(): s = s * 0", BRANCH),
        ("bool", "elif done:", BRANCH),
        ("item", "if step % 10 == 0: return loss.item()", OTHER),
        ("item", "if done: best = loss.item()", OTHER),
        ("item", "if loss.item() < best: best = loss", BRANCH),
        ("bool", "if torch.isnan(loss) or torch.isinf(loss):", NONFINITE),
        ("bool", "assert (pos >= 0).all()", ASSERT),
        ("item", "value = loss.item()", OTHER),
        ("item", "metrics = dict(loss=loss.item())", OTHER),
        ("item", "print('{loss}'.format(**dict(loss=loss.item())))", LOG),
        ("item", "return action.item()", RETURNED),
        ("tolist", "return loss.tolist(), norm.tolist()", RETURNED),
        ("item", "return env.step(action.item())", NEEDED),
        ("d2h", 'h2 = g.to("cpu")', TO_PINNED),
        ("cpu", "h = g.cpu()", TO_PINNED),
        ("index", "name = names[best]", "index with x.index_select or gather, whose index may stay "
         "on the GPU"),
        ("index", "means.append(x[i, :n].mean(0))", NUMBER),
        ("index", "out[j, :k] = targets[matches, 1:]", NUMBER),
        ("index", "padded = x.new_zeros(n, longest)", NUMBER),
        ("index", "for i in range(n):", NUMBER),
        ("h2d-pageable", "x = batch.to(device)", PIN),
        ("tolist", "counts = hits.tolist()", TOGETHER),
        ("h2d-pageable", "x = data[numpy_index]", INDEX),
        ("h2d-pageable", "mask = torch.zeros(4).cuda()", MAKE_THERE),
        ("h2d-pageable", "return y, torch.zeros(n, dtype=torch.long).to(device)", MAKE_THERE),
        ("h2d-pageable", "x = torch.randn(4).to(d); y = torch.randint(9, (4,)).to(d)",
         MAKE_THERE + RANDOM),
        ("h2d-pageable", "x = torch.randn(4).to(d); y = y.to(d)", PIN),
        ("h2d-pageable", "a = torch.rand(32, 1).expand_as(r).to(d)", MAKE_THERE + RANDOM),
        ("h2d-pageable", "a = r.expand_as(torch.rand(32, 1)).to(d)", PIN),
        ("h2d-pageable", "x = torch.from_numpy(a).to(d)", PIN),
        ("item", "scaler.step(optimizer)", SCALER),
        ("item", "self.grad_scaler.step(self.optimizer)", SCALER),
        ("item", "scale = self.scaler.get_scale()", SCALER),
        ("h2d-pageable", "xb, yb = x[perm[i : i + 8]], y[perm[i : i + 8]]", INDEX),
        ("h2d-pageable", "loss = f(table[:, torch.randperm(9)])", INDEX),
        ("h2d-pageable", "a = x.mean(); b = y[rows].mean()", INDEX),
        ("h2d-pageable", "x = batches[i].to(device)", PIN),
        ("h2d-pageable", "x = torch.as_tensor(rows[i], device=device)", PIN),
        ("h2d-pageable", "y = f(x[0], x[1:n])", PIN),
        ("h2d-pageable", "buffer[i] = row", PIN),
        ("h2d-pinned", "x = batch.to(device)", "the memory is pinned already: add "
         "non_blocking=True"),
        ("h2d-list", "d = x[[1, 2, 3]]", "make the index a GPU tensor once, before the loop"),
        ("h2d-list", "b = torch.tensor([1, 2, 3], device=dev)", "make the tensor once, before the "
         "loop, or copy it from pinned memory"),
        ("h2d-scalar", "a = torch.tensor(h, device=dev)", FULL),
        ("h2d-scalar", 'state["lr"] = torch.tensor(h, device=dev)', FULL),
        ("h2d-scalar", "logits.detach()[classes[:1]] = 0.0", FILL),
        ("h2d-scalar", "x[0] = 1.0  # the first", FILL),
        ("h2d-scalar", "counter.copy_(1 + step)", "x.fill_(number) fills it on the GPU, without a "
         "copy"),
        ("item", "self.logger.record('train/loss', loss.item())", LOG),
        ("h2d-scalar", "x.index_put_((i,), zero)", FILL),
        ("nonzero", "a = x[m]", WHERE),
        ("nonzero", "y[m] = a * 2", ASSIGN),
        ("nonzero", "out[j, :k] = targets[matches, 1:]", WHERE),
        ("nonzero", "loss[2] = box[fg_mask].abs().mean()", WHERE),
        ("bool", "total = max(scores.sum(), 1)", CLAMP),
        ("nonzero", "if (x[m] == 2).all(): pass", WHERE),
        ("nonzero", "i = m.nonzero()", KNOWN_SIZE),
        ("nonzero", "token, slot = torch.where(index == e)", KNOWN_SIZE),
        ("nonzero", "b = torch.masked_select(x, m)", "torch.where(mask, x, other), or a masked sum "
         "and mean, keeps the shape"),
        ("size-readback", "a = x.repeat_interleave(r)", "pass output_size=, if the total is known "
         "on the CPU"),
        ("size-readback", "k = F.one_hot(a)", "pass num_classes="),
        ("size-readback", "u = torch.unique(a)", "work with all values and a mask, or call it "
         "once, outside of the step"),
        ("synchronize", "torch.cuda.synchronize()", "asked for: leave it out of the loop; to time "
         "a part, read CUDA events later"),
    ],
)  # fmt: skip
def test_words_fit_kind_and_line(kind: str, source: str, words: str) -> None:
    assert advice(kind, source=source, phase="forward", during="training", via=None) == words


@pytest.mark.parametrize(
    ("during", "words"),
    [
        ("setup", "before the first step: nothing to do"),
        ("teardown", "after the last step: nothing to do"),
        ("compilation", "while compiling, once: nothing to do"),
        ("evaluation", "add up on the GPU and read the result once, after the evaluation"),
    ],
)
def test_words_fit_the_time(during: str, words: str) -> None:
    source = "correct += (p == y).sum().item()"
    assert advice("item", source=source, phase=None, during=during, via=None) == words


def test_an_action_is_read_though_a_policy_that_acts_runs_as_in_an_evaluation() -> None:
    source = "actions = actions.cpu().numpy().reshape((-1, *self.action_space.shape))"
    for during in ("evaluation", "between", "training"):
        assert advice("cpu", source=source, phase=None, during=during, via=None) == NEEDED
    other = advice("cpu", source="h = action_loss.cpu()", phase=None, during="between", via=None)
    assert other == TO_PINNED


def test_a_checkpoint_is_one_whichever_part_of_torch_reads_it() -> None:
    for via in ("torch.serialization:1238 persistent_id", "torch.storage:264 cpu"):
        said = advice("d2h", source="torch.save(s, f)", phase=None, during="between", via=via)
        assert said.startswith("a checkpoint has to be read")


def test_a_distributed_checkpoint_is_one_too() -> None:
    via = "torch.distributed.checkpoint._state_dict_stager:179 _stage_untyped_storage"
    said = advice("d2h", source="dcp.async_save(s)", phase=None, during="training", via=via)
    assert said.startswith("a checkpoint has to be copied to the host: save it less often")


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("h2d-pageable", "_object_to_tensor"),
        ("index", "_tensor_to_object"),
        ("item", "all_gather_object"),
        ("cpu", "broadcast_object_list"),
    ],
)
def test_objects_of_ranks_are_best_sent_elsewhere(kind: str, function: str) -> None:
    via = f"torch.distributed.distributed_c10d:3410 {function}"
    source = "dist.all_gather_object(names, name)"
    said = advice(kind, source=source, phase=None, during="training", via=via)
    assert said.startswith("ranks send Python objects as tensors on the device of their group")
    reduced = "torch.distributed.distributed_c10d:3100 all_reduce"
    assert advice(kind, source=source, phase=None, during="training", via=reduced) != said


@pytest.mark.parametrize(
    ("kind", "phase", "via", "words"),
    [
        ("cpu", "forward", "torch.autograd.graph:405 pack_to_cpu", "use it with pin_memory=True"),
        (
            "h2d-pageable",
            "backward",
            "torch.autograd.graph:418 unpack_from_cpu",
            "with pin_memory=True it does so without a wait",
        ),
    ],
)
def test_what_save_on_cpu_copies_is_told_as_its_own(
    kind: str, phase: str, via: str, words: str
) -> None:
    said = advice(kind, source="y = block(x)", phase=phase, during="training", via=via)
    assert said.startswith("save_on_cpu ")
    assert words in said


@pytest.mark.parametrize(
    ("kind", "via", "setting"),
    [
        (
            "size-readback",
            "torchmetrics.functional.classification.stat_scores:71 "
            "_binary_stat_scores_tensor_validation",
            "validate_args=False",
        ),
        ("bool", "torchmetrics.aggregation:93 _cast_and_nan_check_input", 'nan_strategy="disable"'),
    ],
)
def test_the_setting_that_leaves_a_test_of_torchmetrics_out_is_named(
    kind: str, via: str, setting: str
) -> None:
    source = "accuracy.update(predicted, labels)"
    said = advice(kind, source=source, phase=None, during="training", via=via)
    assert setting in said
    other = "torchmetrics.utilities.data:206 _bincount"
    assert setting not in advice(kind, source=source, phase=None, during="training", via=other)


def test_words_fit_the_place() -> None:
    hook = advice(
        "item", source="n = g.norm().item()", phase="backward", during="training", via=None
    )
    assert hook == (
        "in a backward hook: collect on the GPU and read it only on the steps that use it, "
        "after backward"
    )
    offload = advice(
        "d2h", source="buffer.copy_(p.grad)", phase="backward", during="training", via=None
    )
    assert offload == TO_PINNED
    clip = advice(
        "bool",
        source="clip_grad_norm_(p, 1.0, error_if_nonfinite=True)",
        phase=None,
        during="training",
        via="torch.nn.utils.clip_grad:110 clip_grad_norm_",
    )
    assert clip == (
        "pass error_if_nonfinite=False, and scope.log(norm=norm) names a norm that is not finite"
    )
    for source, function in (
        ("scaler.step(optimizer)", "370 <genexpr>"),
        ("scaler.update()", "502 update"),
    ):
        via = f"torch.amp.grad_scaler:{function}"
        scaled = advice("item", source=source, phase="optimizer", during="training", via=via)
        assert scaled == SCALER
    for source, function in (
        ("print(scaler.get_scale())", "573 get_scale"),
        ("torch.save(scaler.state_dict(), f)", "619 _get_growth_tracker"),
    ):
        via = f"torch.amp.grad_scaler:{function}"
        shown = advice("item", source=source, phase=None, during="training", via=via)
        assert shown.startswith("GradScaler's scale is read here")
    module = "torch.nn.modules.module:1371 convert"
    moved = advice("h2d-pageable", source="net.to(d)", phase=None, during="training", via=module)
    assert moved == "move the module once, before the loop"


@pytest.mark.parametrize(
    ("kind", "source", "via", "first_words"),
    [
        ("item-implicit", "loss = o.step(closure)", "lbfgs:428 step", "L-BFGS chooses its steps"),
        ("item-implicit", "s.step(loss)", "lr_scheduler:1699 step", "the scheduler compares"),
        ("item-implicit", "ema.update_parameters(m)", "swa_utils:310 u", "AveragedModel reads or"),
        ("item-implicit", "o.step()", "adam:300 _get_value", "give the optimizer a number"),
    ],
)
def test_each_part_of_torch_optim_reads_for_its_own_reason(
    kind: str, source: str, via: str, first_words: str
) -> None:
    said = advice(
        kind, source=source, phase="optimizer", during="training", via=f"torch.optim.{via}"
    )
    assert said.startswith(first_words)


@pytest.mark.parametrize(
    ("source", "phase", "words"),
    [
        ("loss = F.ctc_loss(p, targets, in_l, t_l)", None, "lengths that stay on the CPU"),
        ("L = torch.linalg.cholesky(K)", "forward", "cholesky_ex"),
        ("x = torch.linalg.solve(K, y)", "forward", "solve_ex"),
        ("e, v = torch.linalg.eigh(K)", "forward", "whether it converged"),
        ("U, S, V = torch.svd(K)", "forward", "whether it converged"),
        ("z = torch.normal(mean, std)", "forward", "torch.randn_like(std)"),
        ("x.masked_fill_(mask, value)", "forward", "a Python number or a CPU tensor"),
        ("loss.backward()", "backward", "an index that is a mask or on the CPU"),
    ],
)
def test_what_an_operator_reads_of_its_own_accord_is_told_by_its_name(
    source: str, phase: str | None, words: str
) -> None:
    said = advice("item-implicit", source=source, phase=phase, during="training", via=None)
    assert words in said
    assert ("a Python number" in said) == ("masked_fill_" in source)


@pytest.mark.parametrize(
    ("via", "first_words"),
    [
        ("IPython.lib.pretty:791 _repr_pprint", "it is read to be shown beneath"),
        ("pdb:1274 _msg_val_func", "the debugger shows it"),
    ],
)
def test_what_is_shown_to_whoever_types_is_not_called_a_setting(via: str, first_words: str) -> None:
    said = advice("repr", source="loss", phase=None, during="training", via=via)
    assert said.startswith(first_words)


def test_a_checkpoint_is_written_less_often_not_from_pinned_memory() -> None:
    said = advice(
        "d2h",
        source="torch.save(model.state_dict(), path)",
        phase=None,
        during="training",
        via="torch.serialization:1238 persistent_id",
    )
    assert said.startswith("a checkpoint has to be read")


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("bool", "if (token == end).all(): break", "torch.where chooses on the GPU"),
        ("bool", "assert (mask.sum() > 0)", "torch._assert_async"),
        ("item", "total += loss.item()", "add up on the GPU and read the result once, after"),
        ("item", "print(epoch, total.item())", "keep it on the GPU: scope.log"),
    ],
)
def test_in_an_evaluation_too_what_decides_is_not_added_up(
    kind: str, source: str, words: str
) -> None:
    said = advice(kind, source=source, phase=None, during="evaluation", via=None)
    assert said.startswith(words)


def test_what_is_loaded_is_not_to_be_saved_less_often() -> None:
    copied = {"phase": None, "during": "training"}
    load = "best = torch.load(path, map_location=device)"
    for via in (None, "torch.serialization:668 _deserialize"):
        said = advice("h2d-pageable", source=load, via=via, **copied)
        assert said == "load it once, before the loop"
    via = "torch.storage:310 to"
    said = advice("h2d-pageable", source="state = read(path)", via=via, **copied)
    assert said == "load it once, before the loop"
    via = "torch.nn.modules.module:2495 _load_from_state_dict"
    said = advice("h2d-pageable", source="trainer.train()", via=via, **copied)
    assert said == "load it once, before the loop"
    clipped = "clip_grad_norm_(model.parameters(), 1.0)"
    via = "torch.nn.utils.clip_grad:173 _clip_grads_with_norm_"
    assert "nonfinite" not in advice("h2d-pageable", source=clipped, via=via, **copied)
    assert "nonfinite" in advice("bool", source=clipped, via=via, **copied)


@pytest.mark.parametrize(
    ("via", "during", "source", "words"),
    [
        ("transformers.trainer:1919 _run_epoch", "training", "trainer.train()", "transformers"),
        (
            "lightning.fabric.utilities.apply_func:134 to_item",
            "evaluation",
            "t.fit(m)",
            "lightning",
        ),
        ("wandb.sdk.wandb_run:1 log", "training", "wandb.log({'loss': loss})", None),
        ("wandb.sdk.wandb_run:1 log", "training", "run.log(dict(loss=loss.detach().mean()))", None),
        ("transformers.trainer:3 f", "evaluation", "print(trainer.evaluate())", "transformers"),
        ("torchmetrics.metric:9 f", "training", "print(f'{m.compute():.2f}')", "torchmetrics"),
        ("/opt/x.py:3 f", "training", "value = f(loss)", None),
    ],
)
def test_a_library_that_reads_is_named_unless_the_line_says_what_for(
    via: str, during: str, source: str, words: str | None
) -> None:
    said = advice("bool", source=source, phase=None, during=during, via=via)
    assert ("may have a setting" in said) == (words is not None)
    if words is not None:
        assert said.startswith(f"{words} reads it")


@pytest.mark.parametrize(
    ("kind", "via", "source", "words"),
    [
        ("nonzero", "torch_geometric.utils.dropout:212 f", "e = dropout_edge(e)", "needs a size"),
        ("size-readback", "ignite.metrics.confusion:179 f", "e.run(data)", "needs a size"),
        ("h2d-scalar", "ignite.metrics.accuracy:289 reset", "e.run(data)", "makes this tensor"),
        ("h2d-list", "keras.src.core:259 convert", "m.fit(x, y)", "makes this tensor"),
        ("h2d-pageable", "torchdiffeq._impl.rk:200 f", "y = odeint(f, y0, t)", "copy it with"),
        ("h2d-nonblocking-pageable", "keras.src:9 put", "m.fit(x, y)", "from pinned memory only"),
        ("h2d-pinned", "accelerate.utils:160 send", "t.train()", "is pinned already: let accel"),
    ],
)
def test_what_a_library_does_is_not_to_be_written_otherwise_in_the_line(
    kind: str, via: str, source: str, words: str
) -> None:
    library = via.partition(".")[0]
    said = advice(kind, source=source, phase="forward", during="training", via=via)
    assert words in said
    assert library in said
    assert "torch.where" not in said
    assert "torch.full" not in said


def test_where_the_line_itself_moves_a_library_s_object_the_copy_is_its_own() -> None:
    via = "torch_geometric.data.data:364 <lambda>"
    source = "data = data.to(device)"
    said = advice("h2d-pageable", source=source, phase="h2d", during="training", via=via)
    assert said == PIN


def test_what_backward_copies_is_what_forward_copied() -> None:
    via = "torch.autograd:395 backward"
    source = "loss.backward()"
    said = advice("h2d-pageable", source=source, phase="backward", during="training", via=via)
    assert said.startswith("backward copies again what forward copied, such as an index")
    hook = "total += mask.to(device)"
    said = advice("h2d-pageable", source=hook, phase="backward", during="training", via=None)
    assert said == PIN


def test_a_read_that_the_program_needs_is_never_removable() -> None:
    for kind, during in itertools.product(KINDS, ("training", "evaluation")):
        words = advice(
            kind, source="o = env.step(a.item())", phase="forward", during=during, via=None
        )
        assert "remove" not in words
        assert len(words) > 20


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError, match="race"):
        advice("race", source="", phase=None, during="training", via=None)
