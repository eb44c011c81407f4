// Integers wrap to their width; division rounds down and by zero gives 0; remainders have the divisor's sign.
// run: verify | interp
// input %a = [-128, 7, -7, 127]
// input %b = [-1, -2, 0, 1]
graph "g" inference {
  input %a: i8[4]
  input %b: i8[4]
  %sum: i8[4] = prim.add(%a, %b)
  %quotient: i8[4] = prim.floor_div(%a, %b)
  %remainder: i8[4] = prim.mod(%a, %b)
  %less: bool[4] = prim.lt(%a, %b)
  output %sum
  output %quotient
  output %remainder
  output %less
}
// expect:
// output 0: i8[4] [127, 5, -7, -128]
// output 1: i8[4] [-128, -4, 0, 127]
// output 2: i8[4] [0, -1, 0, 0]
// output 3: bool[4] [true, false, true, false]
