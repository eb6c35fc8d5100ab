"""The report of a run: its schema, how it is built, and its renderers.

Where to look:

- what a report holds: ``model``, ``model_times``, ``model_gpu``
- how it is made: ``build``, from ``basis``, ``build_times``, ``build_syncs``, ``build_ranks``; with
  a captured window ``build_gpu``, ``build_phases``, ``build_what_if``; of a trace without a
  recording ``build_captured``, ``build_window_syncs``
- the first line: ``verdict``, ``verdict_gain``, ``verdict_outside``
- what to look at: ``findings``, ``findings_gpu``
- as text: ``text``, ``text_parts``, ``text_times``, ``text_syncs``, ``text_gpu``,
  ``text_what_if``, ``text_captures``, ``text_ranks``, ``text_unseen``; as HTML: the package
  ``page``; as JSON: ``json``
- words that text and page share: ``wording``, ``steps_words``, ``gpu_words``, ``metrics_words``,
  ``replay_trust``
- two runs beside each other: the package ``compare``; a run against a baseline: ``gate``
"""
