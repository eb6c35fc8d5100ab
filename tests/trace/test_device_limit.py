"""More GPUs than a process can have are a damaged file's, and not looked at one by one."""

from made_windows import Made

from trainscope.trace.device_limit import MAX_DEVICES, with_possible_devices


def test_a_usual_window_stays_as_it_is() -> None:
    made = Made()
    for device in range(MAX_DEVICES):
        made.kernel(device, device + 1, device=device)
    window = made.window()
    assert with_possible_devices(window) is window


def test_the_devices_with_most_work_stay_and_the_others_are_counted() -> None:
    made = Made().kernel(0, 1, device=500).kernel(2, 3, device=500)
    for device in range(MAX_DEVICES + 6):
        made.kernel(10 + device, 11 + device, device=device)
    found = with_possible_devices(made.window())
    assert found.gpu.device.tolist() == [500, 500, *range(MAX_DEVICES - 1)]
    assert found.problems == (
        "71 GPUs are named, more than a process can have: 7 GPU ops are left out, those of the "
        "GPUs with fewest",
    )
