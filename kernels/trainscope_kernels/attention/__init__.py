"""FlashAttention: softmax attention whose memory grows with the sequence, not with its square.

Where to look:

- what a user calls: ``op``, ``varlen``, ``checks``; what torch knows: ``registered``; which impl
  runs: ``run``, ``call``
- what has to come out: ``reference``, ``packed``; which keys are seen: ``masking``
- Triton's kernels: ``triton_forward``, ``triton_dkdv``, ``triton_dq``, ``triton_delta``; what they
  share: ``triton_tiles``, ``triton_scores``, ``triton_meta``; how they start: ``triton_launch``,
  ``tile_sizes``
- what Gluon's take: ``gluon_envelope``; how they start: ``gluon_launch``, ``gluon_start``
- Gluon's forward: ``gluon_forward``, ``gluon_forward_consumer``, ``gluon_forward_parts``,
  ``gluon_forward_sizes``, ``gluon_forward_launch``, ``gluon_schedule``, ``gluon_packed``
- Gluon's backward: ``gluon_backward`` with ``gluon_backward_consumer``, ``gluon_backward_copies``,
  ``gluon_backward_mask``, ``gluon_backward_packed``, ``gluon_backward_sizes``,
  ``gluon_backward_walk``, ``gluon_row_terms``, ``gluon_dq``; its launches:
  ``gluon_backward_launch``, ``gluon_apart_launch``; wide heads and sums in one order:
  ``gluon_wide_backward``, ``gluon_queries_backward``
- what both ways share in Gluon: ``gluon_band``, ``gluon_mask``, ``gluon_pipeline``,
  ``gluon_warpgroups``
"""

from trainscope_kernels.attention.op import flash_attention
from trainscope_kernels.attention.varlen import flash_attention_varlen

__all__ = ["flash_attention", "flash_attention_varlen"]
