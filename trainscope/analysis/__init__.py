"""Pure functions of a trace.

Where to look:

- how long steps and phases take: ``steps``, ``ranges``; in a captured window ``window_steps``,
  ``window_phases``, ``window_ranges``, ``captured_steps``; ``change`` compares two series of times
- which lines wait, as the live detector saw it: ``syncs``, ``told_sites``, ``gpu_branches``
- which lines wait, in a captured window: ``window_syncs``, from ``waits``, ``wait_calls``,
  ``waited_for``, ``wait_kinds``, ``wait_places``, ``operators_before``, ``user_frames``,
  ``window_site``
- which wait of a window is which of the detector's: ``live_sites``, ``noted_sites``,
  ``kind_families``; which sync of one run is which of another's: ``sync_keys``, ``paired_keys``
- when the GPU is idle and why: ``idle``, from ``gpu_gaps``, ``sync_claims``, ``cpu_cover``
- what a wait costs: the package ``replay``
- what the GPU does: ``kernels``, ``kernel_names``, ``copies``, ``communication``
- how far the CPU runs ahead: ``launches``, ``launch_chains``
- several ranks: ``ranks``
- what a window may lack: ``completeness``
- what the others rest on: ``examined``, ``intervals``, ``nesting``, ``launched_by``,
  ``operators_of``, ``thread_roles``, ``names``
"""
