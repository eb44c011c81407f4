//! Views: the same elements under another shape; no arithmetic and no memory traffic of their own.

use super::emit::{
    as_result, binary, concat, expand, iota_along, one, op, operand, operands, reshape, result_dtype, result_shape,
    select, zeros,
};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, PrimOp, ValueId, contiguous_strides};

pub const DECLS: &[OpDecl] = &[
    op!(View "aten.view.default", "view" => to_promised_shape, "same elements in row-major order under a new shape"),
    op!(View "aten._unsafe_view.default", "_unsafe_view" => to_promised_shape, "view of a value nobody else sees"),
    op!(View "aten.view_copy.default", "view_copy" => to_promised_shape, "view, as a new tensor"),
    op!(View "aten.reshape.default", "reshape" => to_promised_shape, "view or copy under a new shape"),
    op!(View "aten._reshape_copy.default", "_reshape_copy" => to_promised_shape, "reshape, as a new tensor"),
    op!(View "aten._reshape_alias.default", "_reshape_alias" => to_promised_shape, "reshape with the strides it implies"),
    op!(View "aten._reshape_alias_copy.default", "_reshape_alias_copy" => to_promised_shape, "reshape, as a new tensor"),
    op!(View "aten.flatten.using_ints", "flatten" => to_promised_shape, "dims start..=end merged into one"),
    op!(View "aten.unflatten.int", "unflatten" => to_promised_shape, "one dim split into several"),
    op!(View "aten.view_as.default", "view_as" => to_promised_shape, "view under the shape of another tensor"),
    op!(View "aten.reshape_as.default", "reshape_as" => to_promised_shape, "reshape to the shape of another tensor"),
    op!(View "aten.squeeze.default", "squeeze" => to_promised_shape, "drops every dim of size 1"),
    op!(View "aten.squeeze.dim", "squeeze.dim" => to_promised_shape, "drops dim `dim` if its size is 1"),
    op!(View "aten.squeeze.dims", "squeeze.dims" => to_promised_shape, "drops those of `dims` whose size is 1"),
    op!(View "aten.squeeze_copy.default", "squeeze_copy" => to_promised_shape, "squeeze, as a new tensor"),
    op!(View "aten.squeeze_copy.dim", "squeeze_copy.dim" => to_promised_shape, "squeeze, as a new tensor"),
    op!(View "aten.squeeze_copy.dims", "squeeze_copy.dims" => to_promised_shape, "squeeze, as a new tensor"),
    op!(View "aten.unsqueeze.default", "unsqueeze" => to_promised_shape, "a new dim of size 1 at `dim`"),
    op!(View "aten.unsqueeze_copy.default", "unsqueeze_copy" => to_promised_shape, "unsqueeze, as a new tensor"),
    op!(View "aten.alias_copy.default", "alias_copy" => same, "the same elements"),
    op!(View "aten.detach_copy.default", "detach_copy" => same, "the same elements"),
    op!(View "aten.expand.default", "expand" => broadcast_to_promised, "dims of size 1 repeat; new dims in front"),
    op!(View "aten.expand_copy.default", "expand_copy" => broadcast_to_promised, "expand, as a new tensor"),
    op!(View "aten.expand_as.default", "expand_as" => broadcast_to_promised, "expand to the shape of another tensor"),
    op!(View "aten.broadcast_to.default", "broadcast_to" => broadcast_to_promised, "expand"),
    op!(View "aten.permute.default", "permute" => permute, "result dim i is operand dim dims[i]"),
    op!(View "aten.permute_copy.default", "permute_copy" => permute, "permute, as a new tensor"),
    op!(View "aten.transpose.int", "transpose" => transpose, "swaps two dims"),
    op!(View "aten.transpose_copy.int", "transpose_copy" => transpose, "transpose, as a new tensor"),
    op!(View "aten.swapaxes.default", "swapaxes" => transpose, "swaps two dims"),
    op!(View "aten.t.default", "t" => reverse_dims, "matrix transpose; vectors and scalars unchanged"),
    op!(View "aten.t_copy.default", "t_copy" => reverse_dims, "t, as a new tensor"),
    op!(View "aten.numpy_T.default", "numpy_T" => reverse_dims, "dims in reverse order"),
    op!(View "aten.mT.default", "mT" => transpose_last, "swaps the last two dims"),
    op!(View "aten.movedim.int", "movedim.int" => movedim, "dim `source` goes to `destination`, the others keep order"),
    op!(View "aten.movedim.intlist", "movedim" => movedim, "dims `source` go to `destination`, the others keep order"),
    op!(View "aten.moveaxis.int", "moveaxis.int" => movedim, "movedim"),
    op!(View "aten.moveaxis.intlist", "moveaxis" => movedim, "movedim"),
    op!(View "aten.as_strided.default", "as_strided" => as_strided, "elements at offset + Σ index·stride of the storage"),
    op!(View "aten.view.dtype", "the same bytes under another dtype"),
    op!(View "aten.flip.default", "flip" => flip, "dims read backwards"),
    op!(View "aten.roll.default", "roll" => roll, "y[(i + shift) mod n] = x[i]"),
    op!(View "aten.rot90.default", "rot90" => rot90, "k quarter turns in the plane of two dims"),
    op!(View "aten.repeat.default", "repeat" => repeat, "the tensor tiled, repeats[i] times along dim i"),
    op!(View "aten.tile.default", "tile" => tile, "repeat, the shorter of shape and repeats padded by ones"),
    op!(View "aten.pixel_shuffle.default", "pixel_shuffle" => pixel_shuffle, "[C·r², H, W] to [C, H·r, W·r]"),
    op!(View "aten.pixel_unshuffle.default", "pixel_unshuffle" => pixel_unshuffle, "[C, H·r, W·r] to [C·r², H, W]"),
    op!(View "aten.channel_shuffle.default", "channel_shuffle" => channel_shuffle, "[g, C/g] channels to [C/g, g]"),
    op!(View "aten.native_channel_shuffle.default", "channel_shuffle" => channel_shuffle, "[g, C/g] channels to [C/g, g]"),
    op!(View "aten.cat.default", "cat" => cat, "joined along dim; legacy empty vectors are skipped; dtypes promote"),
    op!(View "aten.concat.default", "concat" => cat, "cat"),
    op!(View "aten.stack.default", "stack" => stack, "joined along a new dim"),
    op!(Pointwise "aten.tril.default", "tril" => tril, "x[i, j] where j - i <= diagonal, else 0"),
    op!(Pointwise "aten.triu.default", "triu" => triu, "x[i, j] where j - i >= diagonal, else 0"),
];

/// `reshape(x, promised shape)`: covers −1 in sizes, squeezes and unsqueezes alike.
fn to_promised_shape(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    one(c, x)
}

/// `x`.
fn same(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    one(c, x)
}

/// `expand(x, promised shape)`.
fn broadcast_to_promised(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = result_shape(c, 0)?;
    let y = expand(c, x, &shape)?;
    one(c, y)
}

fn permute(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let rank = c.b.rank(x);
    let dims = c.ints(1, "dims")?.ok_or("dims is absent")?;
    let perm = dims.iter().map(|d| Call::wrap(*d, rank)).collect::<Result<Vec<_>, _>>()?;
    let y = c.b.permute(x, &perm);
    one(c, y)
}

fn transpose(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let rank = c.b.rank(x);
    let (a, b) = (Call::wrap(c.i64(1, "dim0", 0)?, rank)?, Call::wrap(c.i64(2, "dim1", 0)?, rank)?);
    let y = if rank == 0 { x } else { c.b.transpose(x, a as i64, b as i64) };
    one(c, y)
}

fn reverse_dims(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let perm: Vec<usize> = (0..c.b.rank(x)).rev().collect();
    let y = c.b.permute(x, &perm);
    one(c, y)
}

fn transpose_last(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    if c.b.rank(x) < 2 {
        return Err("fewer than two dims".into());
    }
    let y = c.b.transpose(x, -2, -1);
    one(c, y)
}

fn movedim(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let rank = c.b.rank(x);
    let wrapped = |dims: Option<Vec<i64>>| -> Result<Vec<usize>, Decline> {
        dims.ok_or("dims are absent")?.iter().map(|d| Call::wrap(*d, rank)).collect()
    };
    let (from, to) = (wrapped(c.ints(1, "source")?)?, wrapped(c.ints(2, "destination")?)?);
    let mut others = (0..rank).filter(|d| !from.contains(d));
    let perm: Vec<usize> =
        (0..rank).filter_map(|i| to.iter().position(|t| *t == i).map(|k| from[k]).or_else(|| others.next())).collect();
    let y = if rank == 0 { x } else { c.b.permute(x, &perm) };
    one(c, y)
}

/// Only what needs no storage: the operand's own layout again, or another dense shape of a dense operand.
fn as_strided(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let size = c.dims(1, "size")?.ok_or("size is absent")?;
    let stride = c.dims(2, "stride")?.ok_or("stride is absent")?;
    let ty = c.b.ty(x).clone();
    let offset_is_zero = c.arg(3, "storage_offset").is_none_or(|a| a.as_i64() == Some(0));
    let Some(own) = ty.strides.clone() else { return Err("the operand's strides are not known".into()) };
    let same_layout = size == ty.shape && stride == own;
    let dense = own == contiguous_strides(&ty.shape)
        && stride == contiguous_strides(&size)
        && Dim::product(&size) == ty.numel();
    if !(offset_is_zero && (same_layout || dense)) {
        return Err("a strided window into the storage".into());
    }
    one(c, x)
}

fn flip(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let y = flip_dims(c, x, &c.ints(1, "dims")?.unwrap_or_default())?;
    one(c, y)
}

fn flip_dims(c: &mut Call<'_, '_>, x: ValueId, dims: &[i64]) -> Result<ValueId, Decline> {
    let rank = c.b.rank(x);
    if rank == 0 || dims.is_empty() {
        return Ok(x);
    }
    let mut dims = dims.iter().map(|d| Call::wrap(*d, rank).map(|d| d as i64)).collect::<Result<Vec<_>, _>>()?;
    dims.sort_unstable();
    Ok(c.b.prim(PrimOp::Flip, &[x], vec![("dims", Arg::ints(dims))]))
}

/// Along each dim of size n: `cat(x[n−s..], x[..n−s])`, s = shift mod n. No dims: the flattened tensor rolls.
fn roll(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shifts = c.dims(1, "shifts")?.unwrap_or_default();
    let dims = c.ints(2, "dims")?.unwrap_or_default();
    let numel = c.b.ty(x).numel();
    if numel.is_const(0) || c.b.rank(x) == 0 {
        return one(c, x);
    }
    if dims.is_empty() {
        let [shift] = shifts.as_slice() else { return Err("several shifts without dims".into()) };
        let flat = reshape(c, x, &[numel])?;
        let y = roll_dim(c, flat, shift, 0)?;
        return one(c, y);
    }
    let mut y = x;
    for (shift, dim) in shifts.iter().zip(dims) {
        let dim = Call::wrap(dim, c.b.rank(x))?;
        y = roll_dim(c, y, shift, dim)?;
    }
    one(c, y)
}

fn roll_dim(c: &mut Call<'_, '_>, x: ValueId, shift: &Dim, dim: usize) -> Result<ValueId, Decline> {
    let n = c.b.shape(x)[dim].clone();
    let shift = shift.modulo(&n);
    if shift.is_const(0) {
        return Ok(x);
    }
    let cut = &n - &shift;
    let head = c.b.slice(x, dim, &Dim::ZERO, &cut, 1);
    let tail = c.b.slice(x, dim, &cut, &n, 1);
    concat(c, &[tail, head], dim)
}

/// k = 1: transpose then flip the first dim; 2: flip both; 3: transpose then flip the second.
fn rot90(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let rank = c.b.rank(x);
    let dims = c.ints(2, "dims")?.unwrap_or_else(|| vec![0, 1]);
    let &[a, b] = dims.as_slice() else { return Err("dims are not two".into()) };
    let (a, b) = (Call::wrap(a, rank)? as i64, Call::wrap(b, rank)? as i64);
    let turned = if rank < 2 { x } else { c.b.transpose(x, a, b) };
    let y = match c.i64(1, "k", 1)?.rem_euclid(4) {
        0 => x,
        1 => flip_dims(c, turned, &[a])?,
        2 => flip_dims(c, x, &[a, b])?,
        _ => flip_dims(c, turned, &[b])?,
    };
    one(c, y)
}

fn repeat(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let repeats = c.dims(1, "repeats")?.unwrap_or_default();
    let y = tiled(c, x, &repeats)?;
    one(c, y)
}

fn tile(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let mut repeats = c.dims(1, "dims")?.unwrap_or_default();
    let missing = c.b.rank(x).saturating_sub(repeats.len());
    repeats.splice(0..0, std::iter::repeat_n(Dim::ONE, missing));
    let y = tiled(c, x, &repeats)?;
    one(c, y)
}

/// `[n] -> [1, n] -> [r, n] -> [r·n]`, all dims at once.
fn tiled(c: &mut Call<'_, '_>, x: ValueId, repeats: &[Dim]) -> Result<ValueId, Decline> {
    let shape = c.b.shape(x);
    let Some(new) = repeats.len().checked_sub(shape.len()) else { return Err("fewer repeats than dims".into()) };
    let (mut split, mut spread, mut to) = (Vec::new(), Vec::new(), Vec::new());
    for (i, r) in repeats.iter().enumerate() {
        let n = if i < new { Dim::ONE } else { shape[i - new].clone() };
        to.push(r * &n);
        if r.is_const(1) || n.is_const(1) {
            split.push(n.clone());
            spread.push(to[i].clone());
        } else {
            split.extend([Dim::ONE, n.clone()]);
            spread.extend([r.clone(), n]);
        }
    }
    let y = reshape(c, x, &split)?;
    let y = expand(c, y, &spread)?;
    reshape(c, y, &to)
}

fn pixel_shuffle(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let r = Dim::from(c.i64(1, "upscale_factor", 1)?);
    let shape = c.b.shape(x);
    let Some(lead) = shape.len().checked_sub(3) else { return Err("fewer than three dims".into()) };
    let channels = shape[lead].floor_div(&(&r * &r));
    let mut split = shape[..lead].to_vec();
    split.extend([channels, r.clone(), r, shape[lead + 1].clone(), shape[lead + 2].clone()]);
    let y = reshape(c, x, &split)?;
    let perm: Vec<usize> = (0..lead).chain([0, 3, 1, 4, 2].map(|i| lead + i)).collect();
    let y = c.b.permute(y, &perm);
    one(c, y)
}

fn pixel_unshuffle(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let r = Dim::from(c.i64(1, "downscale_factor", 1)?);
    let shape = c.b.shape(x);
    let Some(lead) = shape.len().checked_sub(3) else { return Err("fewer than three dims".into()) };
    let mut split = shape[..=lead].to_vec();
    for n in &shape[lead + 1..] {
        split.extend([n.floor_div(&r), r.clone()]);
    }
    let y = reshape(c, x, &split)?;
    let perm: Vec<usize> = (0..lead).chain([0, 2, 4, 1, 3].map(|i| lead + i)).collect();
    let y = c.b.permute(y, &perm);
    one(c, y)
}

fn channel_shuffle(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let groups = c.dim(1, "groups")?;
    let mut shape = c.b.shape(x);
    if shape.len() < 3 || groups.is_const(0) {
        return Err("no channels to shuffle".into());
    }
    let each = shape[1].floor_div(&groups);
    shape.splice(1..2, [groups, each]);
    let y = reshape(c, x, &shape)?;
    let y = c.b.transpose(y, 1, 2);
    one(c, y)
}

fn cat(c: &mut Call<'_, '_>) -> RuleResult {
    let parts = operands(c, 0, "tensors")?;
    let (dtype, rank) = (result_dtype(c, 0)?, c.result(0)?.rank());
    let legacy = |s: &[Dim]| rank != 1 && s.len() == 1 && s[0].is_const(0);
    let kept: Vec<ValueId> = parts.into_iter().filter(|v| !legacy(c.b.graph.shape(*v))).collect();
    if kept.is_empty() {
        let shape = result_shape(c, 0)?;
        let y = zeros(c, &shape, dtype)?;
        return one(c, y);
    }
    let dim = Call::wrap(c.i64(1, "dim", 0)?, rank)?;
    let kept: Vec<ValueId> = kept.into_iter().map(|v| c.b.cast(v, dtype)).collect();
    let y = concat(c, &kept, dim)?;
    one(c, y)
}

fn stack(c: &mut Call<'_, '_>) -> RuleResult {
    let parts = operands(c, 0, "tensors")?;
    let (dtype, rank) = (result_dtype(c, 0)?, c.result(0)?.rank());
    let dim = Call::wrap(c.i64(1, "dim", 0)?, rank)?;
    let parts: Vec<ValueId> = parts
        .into_iter()
        .map(|v| {
            let v = c.b.cast(v, dtype);
            c.b.unsqueeze(v, dim)
        })
        .collect();
    let y = concat(c, &parts, dim)?;
    one(c, y)
}

fn tril(c: &mut Call<'_, '_>) -> RuleResult {
    triangle(c, PrimOp::Le)
}

fn triu(c: &mut Call<'_, '_>) -> RuleResult {
    triangle(c, PrimOp::Ge)
}

/// `where(j <cmp> i + diagonal, x, 0)`.
fn triangle(c: &mut Call<'_, '_>, cmp: PrimOp) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    let Some(lead) = shape.len().checked_sub(2) else { return Err("fewer than two dims".into()) };
    let diagonal = c.arg(1, "diagonal").map_or(Some(Dim::ZERO), Arg::as_dim).ok_or("diagonal is not an integer")?;
    let i = iota_along(c, &shape[lead..], 0);
    let j = iota_along(c, &shape[lead..], 1);
    let i = if diagonal.is_const(0) {
        i
    } else {
        let k = super::emit::dim_value(c, &diagonal, DType::I64)?;
        binary(c, PrimOp::Add, i, k)?
    };
    let keep = binary(c, cmp, j, i)?;
    let dtype = c.b.dtype(x);
    let zero = zeros(c, &[], dtype)?;
    let y = select(c, keep, x, zero)?;
    Ok(vec![as_result(c, y, 0)?])
}
