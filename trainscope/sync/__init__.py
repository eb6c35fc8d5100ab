"""Seeing every wait for the GPU: probes, sites and guards.

Where to look:

- what a user holds: ``detector``, ``guards``
- how waits are seen: ``live``, from ``armed`` (torch's own warnings) and ``probes`` (timed calls),
  ``torch_ops``; with no GPU the package ``dry``
- what is put in and taken out: ``installation``, ``process``, ``methods``, ``patches``,
  ``own_code``, ``cuda_present``
- of which kind a wait is: ``implicit``, ``expression``, ``subscripts``, ``operands``, ``copies``
- whose line it is: ``blame``, ``statement``, ``cells``; what is ours and no one's: ``own``
- when it came: ``place``, ``loop``; whether it is permitted: ``permits``, ``messages``
- what is counted: ``sites``, ``site_counts``, ``noted``; in which steps that was possible:
  ``armed_steps``
- between those who see and those who count: ``observer``
"""
