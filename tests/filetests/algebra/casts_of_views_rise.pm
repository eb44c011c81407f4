// On a GPU two views of one value are one cast to 16 bits, and what is repeated is cast once. On a CPU, for views of a part, and for
// one view alone (it may say how the result lies in memory) casts stay where they are.
// run: verify | algebra | simplify
graph "casts" inference {
  input %x: f32[8, 64] @cuda:0
  input %c: f32[8, 64]
  %e: f32[8, 64] @cuda:0 = prim.exp(%x)
  %t: f32[64, 8] @cuda:0 = prim.permute(%e, perm=[1, 0])
  %a: bf16[64, 8] @cuda:0 = prim.cast(%t, dtype=bf16)
  %b: bf16[8, 64] @cuda:0 = prim.cast(%e, dtype=bf16)
  %p: bf16[8, 8] @cuda:0 = aten.mm.default(%b, %a)
  %r: f32[8, 1, 64] @cuda:0 = prim.reshape(%e, shape=[8, 1, 64])
  %w: f32[8, 4, 64] @cuda:0 = prim.expand(%r, shape=[8, 4, 64])
  %d: bf16[8, 4, 64] @cuda:0 = prim.cast(%w, dtype=bf16)
  %f: bf16[8, 4, 64] @cuda:0 = prim.neg(%d)
  %s: f32[8, 32] @cuda:0 = prim.slice(%e, dim=1, start=0, end=32, step=1)
  %g: bf16[8, 32] @cuda:0 = prim.cast(%s, dtype=bf16)
  %h: bf16[8, 32] @cuda:0 = prim.neg(%g)
  %y: f32[8, 64] @cuda:0 = prim.sin(%x)
  %yt: f32[64, 8] @cuda:0 = prim.permute(%y, perm=[1, 0])
  %yb: bf16[64, 8] @cuda:0 = prim.cast(%yt, dtype=bf16)
  %ct: f32[64, 8] = prim.permute(%c, perm=[1, 0])
  %cc: bf16[64, 8] = prim.cast(%ct, dtype=bf16)
  %cn: bf16[64, 8] = prim.neg(%cc)
  output %p
  output %yb
  output %f
  output %h
  output %cn
}
// expect:
// graph "casts" inference {
//   input %x: f32[8, 64] @cuda:0
//   input %c: f32[8, 64]
//   %e: f32[8, 64] @cuda:0 = prim.exp(%x)
//   %v4: bf16[8, 64] @cuda:0 = prim.cast(%e, dtype=bf16)
//   %a: bf16[64, 8] @cuda:0 = prim.permute(%v4, perm=[1, 0])
//   %p: bf16[8, 8] @cuda:0 = aten.mm.default(%v4, %a)
//   %v11: bf16[8, 1, 64] @cuda:0 = prim.reshape(%v4, shape=[8, 1, 64])
//   %d: bf16[8, 4, 64] @cuda:0 = prim.expand(%v11, shape=[8, 4, 64])
//   %f: bf16[8, 4, 64] @cuda:0 = prim.neg(%d)
//   %s: f32[8, 32] @cuda:0 = prim.slice(%e, dim=1, start=0, end=32, step=1)
//   %g: bf16[8, 32] @cuda:0 = prim.cast(%s, dtype=bf16)
//   %h: bf16[8, 32] @cuda:0 = prim.neg(%g)
//   %y: f32[8, 64] @cuda:0 = prim.sin(%x)
//   %yt: f32[64, 8] @cuda:0 = prim.permute(%y, perm=[1, 0])
//   %yb: bf16[64, 8] @cuda:0 = prim.cast(%yt, dtype=bf16)
//   %ct: f32[64, 8] = prim.permute(%c, perm=[1, 0])
//   %cc: bf16[64, 8] = prim.cast(%ct, dtype=bf16)
//   %cn: bf16[64, 8] = prim.neg(%cc)
//   output %p
//   output %yb
//   output %f
//   output %h
//   output %cn
// }
