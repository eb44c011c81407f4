// A product of sums would have 4^40 terms; it is refused, not computed.
// run: parse
// error: the size expression has more than 256 terms or factors
graph "g" inference {
  output (a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)*(a+b+c+d)
}
