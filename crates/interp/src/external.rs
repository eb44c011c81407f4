//! External operators that decompositions leave native, built in: matrix products, convolution, `copy_`.

use crate::Scope;
use crate::pointwise::cast;
use crate::round::wrap;
use crate::tensor::{Data, Tensor, flat, indices, sizes};
use crate::view::expand;
use permalloy_ir::{Arg, DType};

type Result<T = Tensor> = std::result::Result<T, String>;

/// The result of a built-in operator; None if there is none of this name.
pub(crate) fn eval(name: &str, scope: &Scope<'_>) -> Option<Result> {
    Some(match name {
        "aten.mm.default" => product_of(scope, &[2, 2], 0),
        "aten.bmm.default" => product_of(scope, &[3, 3], 0),
        "aten.mv.default" => product_of(scope, &[2, 1], 0),
        "aten.dot.default" => product_of(scope, &[1, 1], 0),
        "aten.addmm.default" => add_product(scope, &[2, 2]),
        "aten.baddbmm.default" => add_product(scope, &[3, 3]),
        "aten.matmul.default" => (|| matmul(scope.tensor(0, "self")?, scope.tensor(1, "other")?))(),
        "aten.convolution.default" => convolution(scope),
        "aten.copy_.default" => copy(scope),
        _ => return None,
    })
}

/// `a @ b` of two arguments with the given ranks, from position `first` on.
fn product_of(scope: &Scope<'_>, ranks: &[usize; 2], first: usize) -> Result {
    let (a, b) = (scope.tensor(first, "left")?, scope.tensor(first + 1, "right")?);
    if [a.shape.len(), b.shape.len()] != *ranks {
        return Err(format!("operands are {:?} and {:?}, not of ranks {ranks:?}", a.shape, b.shape));
    }
    if ranks == &[3, 3] && a.shape[0] != b.shape[0] {
        return Err(format!("batches of {:?} and {:?} differ", a.shape, b.shape));
    }
    matmul(a, b)
}

/// `beta·self + alpha·(a @ b)`; a beta of 0 ignores `self`, NaN or not.
fn add_product(scope: &Scope<'_>, ranks: &[usize; 2]) -> Result {
    let product = product_of(scope, ranks, 1)?;
    let bias = expand(scope.tensor(0, "self")?, &product.shape)?;
    let factor =
        |name: &str| scope.node.kwarg(name).map_or(Ok(1.0), |a| a.as_f64().ok_or(format!("{name} is not a number")));
    let (beta, alpha) = (factor("beta")?, factor("alpha")?);
    let data = match (&bias.data, &product.data) {
        (Data::F(x), Data::F(p)) => {
            let add = |(x, p): (&f64, &f64)| if beta == 0.0 { alpha * p } else { beta * x + alpha * p };
            Data::F(x.iter().zip(p).map(add).collect())
        }
        (Data::I(x), Data::I(p)) => {
            let (beta, alpha) = (beta as i64, alpha as i64);
            let add = |(x, p): (&i64, &i64)| x.wrapping_mul(beta).wrapping_add(p.wrapping_mul(alpha));
            Data::I(x.iter().zip(p).map(|pair| wrap(product.dtype, add(pair))).collect())
        }
        _ => return Err(format!("{} does not add to {}", bias.dtype, product.dtype)),
    };
    Ok(Tensor { dtype: product.dtype, shape: product.shape, data })
}

/// `torch.matmul`: vectors gain a dim that the result loses again, batch dims broadcast.
fn matmul(a: &Tensor, b: &Tensor) -> Result {
    let mismatch = || format!("{}{:?} does not multiply {}{:?}", a.dtype, a.shape, b.dtype, b.shape);
    if a.dtype != b.dtype || a.shape.is_empty() || b.shape.is_empty() {
        return Err(mismatch());
    }
    let (mut left, mut right) = (a.clone(), b.clone());
    if a.shape.len() == 1 {
        left.shape.insert(0, 1);
    }
    if b.shape.len() == 1 {
        right.shape.push(1);
    }
    let (l, r) = (left.shape.len(), right.shape.len());
    let (rows, inner, columns) = (left.shape[l - 2], left.shape[l - 1], right.shape[r - 1]);
    if right.shape[r - 2] != inner {
        return Err(mismatch());
    }
    let batch = broadcast(&left.shape[..l - 2], &right.shape[..r - 2]).ok_or_else(mismatch)?;
    let left = expand(&left, &[&batch[..], &[rows, inner]].concat())?;
    let right = expand(&right, &[&batch[..], &[inner, columns]].concat())?;
    let mut shape = [&batch[..], &[rows, columns]].concat();
    sizes(&shape.iter().map(|s| *s as i64).collect::<Vec<_>>())?;
    let terms = indices(&shape).map(|at| {
        let (head, row, column) = (&at[..batch.len()], at[batch.len()], at[batch.len() + 1]);
        let batch = flat(head, &batch);
        (0..inner).map(move |k| ((batch * rows + row) * inner + k, (batch * inner + k) * columns + column))
    });
    let data = sum_products(&left, &right, terms)?;
    if b.shape.len() == 1 {
        shape.pop();
    }
    if a.shape.len() == 1 {
        shape.remove(batch.len());
    }
    Ok(Tensor { dtype: a.dtype, shape, data })
}

/// One element a list of pairs of flat positions: Σ a[i]·b[j].
fn sum_products<T: Iterator<Item = (usize, usize)>>(
    a: &Tensor,
    b: &Tensor,
    elements: impl Iterator<Item = T>,
) -> Result<Data> {
    match (&a.data, &b.data) {
        (Data::F(x), Data::F(y)) => Ok(Data::F(elements.map(|terms| terms.map(|(i, j)| x[i] * y[j]).sum()).collect())),
        (Data::I(x), Data::I(y)) => {
            let sum = |terms: T| terms.fold(0i64, |sum, (i, j)| sum.wrapping_add(x[i].wrapping_mul(y[j])));
            Ok(Data::I(elements.map(|terms| wrap(a.dtype, sum(terms))).collect()))
        }
        _ => Err(format!("{} does not multiply {}", a.dtype, b.dtype)),
    }
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |k| s[k]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// `copy_(self, src)` gives self's new value: src, broadcast and cast.
fn copy(scope: &Scope<'_>) -> Result {
    let (target, src) = (scope.tensor(0, "self")?, scope.tensor(1, "src")?);
    cast(&expand(src, &target.shape)?, target.dtype, scope.options.round)
}

/// Geometry of a convolution, one entry a spatial dim.
struct Geometry {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    groups: usize,
}

impl Geometry {
    /// Position in the padded side's space that kernel element `k` at window `o` touches, if it lies in `0..size`.
    fn touch(&self, d: usize, o: usize, k: usize, size: usize) -> Option<usize> {
        let i = o as i64 * self.stride[d] - self.padding[d] + k as i64 * self.dilation[d];
        usize::try_from(i).ok().filter(|i| *i < size)
    }
}

/// `convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)` in any number of
/// spatial dims. The weight is `[out, in/groups, k…]`, transposed `[in, out/groups, k…]`.
fn convolution(scope: &Scope<'_>) -> Result {
    let (x, w) = (scope.tensor(0, "input")?, scope.tensor(1, "weight")?);
    let spatial = x.shape.len().checked_sub(2).filter(|s| *s > 0 && w.shape.len() == x.shape.len());
    let Some(spatial) = spatial else {
        return Err(format!("input {:?} and weight {:?} are not of one rank above 2", x.shape, w.shape));
    };
    let ints = |position: usize, name: &str, least: i64| -> Result<Vec<i64>> {
        let dims = scope.node.arg(position, name).and_then(Arg::as_dims).ok_or(format!("argument {name} is absent"))?;
        let mut v: Vec<i64> = dims.iter().map(|d| scope.dim(d)).collect::<Result<_>>()?;
        if v.len() == 1 {
            v = vec![v[0]; spatial];
        }
        // The upper bound keeps products of sizes within 64 bits.
        let legal = v.len() == spatial && v.iter().all(|i| (least..1 << 24).contains(i));
        if legal { Ok(v) } else { Err(format!("argument {name}={v:?} is not legal for {spatial} spatial dims")) }
    };
    let flag = scope.node.arg(6, "transposed").and_then(Arg::as_bool).unwrap_or(false);
    let groups = scope.node.arg(8, "groups").and_then(Arg::as_i64).unwrap_or(1);
    let groups =
        usize::try_from(groups).ok().filter(|g| (1..1 << 24).contains(g)).ok_or("groups is not a positive number")?;
    let geometry = Geometry {
        stride: ints(3, "stride", 1)?,
        padding: ints(4, "padding", 0)?,
        dilation: ints(5, "dilation", 1)?,
        groups,
    };
    let (channels_in, out_channels) =
        if flag { (w.shape[0], w.shape[1] * groups) } else { (w.shape[1] * groups, w.shape[0]) };
    if x.shape[1] != channels_in || channels_in % groups != 0 || out_channels % groups != 0 {
        return Err(format!("input {:?} does not fit weight {:?} in {groups} groups", x.shape, w.shape));
    }
    let mut shape = vec![x.shape[0] as i64, out_channels as i64];
    let output_padding = if flag { ints(7, "output_padding", 0)? } else { vec![0; spatial] };
    for (d, extra) in output_padding.iter().enumerate() {
        let (size, kernel) = (x.shape[d + 2] as i64, w.shape[d + 2] as i64);
        let (stride, reach) = (geometry.stride[d], geometry.dilation[d] * (kernel - 1));
        shape.push(if flag {
            (size - 1) * stride - 2 * geometry.padding[d] + reach + extra + 1
        } else {
            (size + 2 * geometry.padding[d] - reach - 1).div_euclid(stride) + 1
        });
    }
    let shape = sizes(&shape)?;
    let terms =
        |at: &[usize]| if flag { transposed_terms(at, x, w, &geometry) } else { forward_terms(at, x, w, &geometry) };
    let data = sum_products(x, w, indices(&shape).map(|at| terms(&at).into_iter()))?;
    let out = Tensor { dtype: x.dtype, shape, data };
    match scope.opt_tensor(2, "bias") {
        Some(bias) => add_bias(out, bias),
        None => Ok(out),
    }
}

/// out[n, c, o] = Σ x[n, i, o·s - p + k·d] · w[c, i, k] over the channels of c's group and the kernel.
fn forward_terms(at: &[usize], x: &Tensor, w: &Tensor, g: &Geometry) -> Vec<(usize, usize)> {
    let (in_group, out_group) = (w.shape[1], w.shape[0] / g.groups);
    let mut terms = Vec::new();
    for k in indices(&w.shape[1..]) {
        let channel = at[1] / out_group * in_group + k[0];
        let touched = (0..k.len() - 1).map(|d| g.touch(d, at[d + 2], k[d + 1], x.shape[d + 2]));
        if let Some(position) = touched.collect::<Option<Vec<_>>>() {
            let from = [&[at[0], channel], &position[..]].concat();
            terms.push((flat(&from, &x.shape), flat(&[&[at[1]], &k[..]].concat(), &w.shape)));
        }
    }
    terms
}

/// The transpose of the above: out[n, c, i·s - p + k·d] += x[n, j, i] · w[j, c, k].
fn transposed_terms(at: &[usize], x: &Tensor, w: &Tensor, g: &Geometry) -> Vec<(usize, usize)> {
    let (in_group, out_group) = (w.shape[0] / g.groups, w.shape[1]);
    let group = at[1] / out_group;
    let mut terms = Vec::new();
    for channel in group * in_group..(group + 1) * in_group {
        for k in indices(&w.shape[2..]) {
            // The window i that touches this output with kernel element k, if there is one.
            let window = |d: usize| {
                let offset = at[d + 2] as i64 + g.padding[d] - k[d] as i64 * g.dilation[d];
                let i = usize::try_from(offset / g.stride[d]).ok()?;
                (offset >= 0 && offset % g.stride[d] == 0 && i < x.shape[d + 2]).then_some(i)
            };
            if let Some(window) = (0..k.len()).map(window).collect::<Option<Vec<_>>>() {
                let from = [&[at[0], channel], &window[..]].concat();
                let weight = [&[channel, at[1] % out_group], &k[..]].concat();
                terms.push((flat(&from, &x.shape), flat(&weight, &w.shape)));
            }
        }
    }
    terms
}

/// One number a channel (dim 1).
fn add_bias(mut out: Tensor, bias: &Tensor) -> Result {
    if bias.shape != out.shape[1..2] || bias.dtype != out.dtype {
        return Err(format!("bias {}{:?} does not fit {}{:?}", bias.dtype, bias.shape, out.dtype, out.shape));
    }
    let channels: Vec<usize> = indices(&out.shape).map(|at| at[1]).collect();
    match (&mut out.data, &bias.data) {
        (Data::F(v), Data::F(b)) => v.iter_mut().zip(channels).for_each(|(x, c)| *x += b[c]),
        (Data::I(v), Data::I(b)) => {
            let dtype: DType = out.dtype;
            v.iter_mut().zip(channels).for_each(|(x, c)| *x = wrap(dtype, x.wrapping_add(b[c])));
        }
        _ => return Err("bias and input differ in kind".to_string()),
    }
    Ok(out)
}
