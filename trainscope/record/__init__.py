"""What runs inside the user's loop.

Where to look:

- what a user holds: ``scope``, ``schedule``, ``steps``, ``one_step``; what it checks: ``settings``
- what is called in each step: ``loop_calls``, ``ranges``, ``recorder``, ``unsure_rows``, ``names``
- what tools show of it: ``shown``, ``nvtx``, ``annotations``
- models and optimizers: the package ``hooks``; captured windows: the package ``capture``; steps of
  a program that names none: the package ``inference``
- from beginning to end: ``session``, ``closing``, ``exit``, ``sigterm``, ``dropped``,
  ``stand_in``, ``world``
- what is written: ``saving``, ``row_writer``, ``facts``; what is said of our own faults: ``faults``
"""
