// A joint graph has at least the outputs it announces for the forward.
// run: verify
// error: 2 forward outputs are announced, the graph has 1 outputs
graph "g" joint(forward_outputs=2) {
  input %x: f32[4]
  output %x
}
