// Loss and gradients made of pieces of the logits.
// run: verify | compare
// options: {"chunked_loss": 65536}
graph "loss" joint(forward_outputs=1) {
  input %h: f32[32, 8] strides=[8, 1]
  input %w: f32[1024, 8] strides=[8, 1]
  input %y: i64[32] strides=[1]
  input %tangents_1: f32[] role=tangent
  %t: f32[8, 1024] strides=[1, 8] = aten.t.default(%w)
  %mm: f32[32, 1024] = aten.mm.default(%h, %t)
  %p: f32[32, 1024] = aten._log_softmax.default(%mm, 1, false)
  %loss: f32[], %total: f32[] = aten.nll_loss_forward.default(%p, %y, none, 1, -100)
  %dp: f32[32, 1024] = aten.nll_loss_backward.default(%tangents_1, %p, %y, none, 1, -100, %total)
  %dx: f32[32, 1024] = aten._log_softmax_backward_data.default(%dp, %p, 1, f32)
  %dxt: f32[1024, 32] strides=[1, 1024] = aten.t.default(%dx)
  %dw: f32[1024, 8] = aten.mm.default(%dxt, %h)
  %dh: f32[32, 8] = aten.mm.default(%dx, %w)
  output %loss
  output %dh
  output %dw
  output none
}
// expect:
// 8449 elements agree
