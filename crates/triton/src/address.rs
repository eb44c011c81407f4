//! Addresses of loads and stores, and values that are indices.

use crate::emit::{Emitter, Key, Value, bits, bound_name, index_name};
use crate::error::{Part, construct};
use crate::expression;
use permalloy_ir::{DType, Dim};
use permalloy_loops::kernel::{Access, BufferId, Mask, OpId};

/// Text, dims and depth of something that is about to be named.
type Made = (String, u32, usize);

/// Index of axes `first..=last` of a dim, flattened: the dim's own, divided and reduced where it has more axes.
fn index(e: &mut Emitter<'_>, d: usize, first: usize, last: usize) -> Part<Value> {
    let dim = e.s.dims[d].clone();
    let depth = e.depth_of(1 << d)?;
    let whole = Value { text: index_name(dim.name), dims: 1 << d, depth, literal: false };
    if first == 0 && last == dim.axes.len() - 1 {
        return Ok(whole);
    }
    let key = Key::Index(dim.axes[first], dim.axes[last]);
    if let Some(v) = e.known(&key) {
        return Ok(v.clone());
    }
    let size = |range: &[usize]| Dim::product(range.iter().map(|a| &e.k.axes[*a].size));
    let (inner, run) = (size(&dim.axes[last + 1..]), size(&dim.axes[first..=last]));
    let mut text = index_name(dim.name);
    if !inner.is_const(1) {
        text = format!("{text} // {}", e.size(&inner));
    }
    if first > 0 {
        let n = e.size(&run);
        text = if inner.is_const(1) { format!("{text} % {n}") } else { format!("({text}) % {n}") };
    }
    let wish = if first == last {
        format!("i{}", dim.axes[first])
    } else {
        format!("i{}_{}", dim.axes[first], dim.axes[last])
    };
    Ok(e.define(key, &wish, text, 1 << d, depth))
}

/// `offset + Σ stride · index` as text. Runs of axes that are walked as one are one term.
fn linear(e: &mut Emitter<'_>, access: &Access) -> Part<Made> {
    let mut terms: Vec<String> = Vec::new();
    if !access.offset.is_const(0) {
        terms.push(e.offset(&access.offset));
    }
    let (mut dims, mut depth) = (0, 0);
    for d in 0..e.s.dims.len() {
        let axes = e.s.dims[d].axes.clone();
        let mut last = axes.len();
        let mut of_dim: Vec<String> = Vec::new();
        while last > 0 {
            last -= 1;
            let stride = access.strides[axes[last]].clone();
            if stride.is_const(0) {
                continue;
            }
            let (mut first, mut covered) = (last, &stride * &e.k.axes[axes[last]].size);
            while first > 0 && access.strides[axes[first - 1]] == covered {
                first -= 1;
                covered = &covered * &e.k.axes[axes[first]].size;
            }
            let i = index(e, d, first, last)?;
            let step = e.size(&stride);
            of_dim.insert(0, if stride.is_const(1) { i.text } else { format!("{step} * {}", i.text) });
            dims |= i.dims;
            depth = depth.max(i.depth);
            last = first;
        }
        terms.extend(of_dim);
    }
    Ok((terms.join(" + ").replace("+ -", "- "), dims, depth))
}

/// The masks of an access that do not hold everywhere.
fn masks(e: &mut Emitter<'_>, access: &Access) -> Part<Vec<Value>> {
    let mut out = Vec::new();
    for m in &access.masks {
        let Some(d) = e.s.dims.iter().position(|d| d.axes.contains(&m.axis)) else {
            return construct("a mask on an axis that no dim has");
        };
        let at = e.s.dims[d].axes.iter().position(|a| *a == m.axis).unwrap_or(0);
        let (low, high) = (m.low.as_const().is_none_or(|c| c > 0), m.high != e.k.axes[m.axis].size);
        if !low && !high {
            continue;
        }
        let key = Key::Mask(m.axis, m.low.clone(), m.high.clone());
        let value = match e.known(&key) {
            Some(v) => v.clone(),
            None => {
                let i = index(e, d, at, at)?;
                let (l, h) = (e.size(&m.low), e.size(&m.high));
                let text = match (low, high) {
                    (true, true) => format!("({} >= {l}) & ({} < {h})", i.text, i.text),
                    (true, false) => format!("{} >= {l}", i.text),
                    _ => format!("{} < {h}", i.text),
                };
                let wish = format!("{}_inside", i.text);
                e.define(key, &wish, text, i.dims, i.depth)
            }
        };
        out.push(value);
    }
    Ok(out)
}

/// Pointer and mask of an access over at least `dims`; empty mask where all of it is in bounds. `extra` is added to the address.
fn place(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    dims: u32,
    extra: Option<&Value>,
) -> Part<(String, Vec<String>, u32, usize)> {
    place_masked(e, b, access, None, dims, extra)
}

/// As `place`; `some`: masks of the access to use instead of all.
fn place_masked(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    some: Option<Vec<Value>>,
    dims: u32,
    extra: Option<&Value>,
) -> Part<(String, Vec<String>, u32, usize)> {
    let pointer = e.pointer(b);
    let (mut text, mut varies, mut depth) = linear(e, access)?;
    let masks = match some {
        Some(masks) => masks,
        None => masks(e, access)?,
    };
    let mut mask = texts(&masks);
    let mask_dims = dims_of(&masks);
    depth = depth.max(depth_of(&masks));
    if let Some(x) = extra {
        text = if text.is_empty() { x.text.clone() } else { format!("{text} + {}", x.text) };
        varies |= x.dims;
        depth = depth.max(x.depth);
    }
    let wanted = varies | mask_dims | dims;
    if wanted & !varies != 0 {
        let zeros = format!("tl.zeros({}, tl.int32)", e.shape(wanted & !varies));
        text = if text.is_empty() { zeros } else { format!("{text} + {zeros}") };
    }
    depth = depth.max(e.depth_of(wanted)?);
    mask.extend(e.bounds(wanted));
    let place = if text.is_empty() { pointer } else { format!("{pointer} + {}", parenthesised(&text)) };
    Ok((place, mask, wanted, depth))
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().map(|v| v.text.clone()).collect()
}

fn dims_of(values: &[Value]) -> u32 {
    values.iter().fold(0, |d, v| d | v.dims)
}

fn depth_of(values: &[Value]) -> usize {
    values.iter().map(|v| v.depth).max().unwrap_or(0)
}

fn parenthesised(text: &str) -> String {
    if text.contains([' ', '*']) { format!("({text})") } else { text.to_string() }
}

pub(crate) fn joined(mask: &[String]) -> String {
    mask.join(" & ")
}

pub(crate) fn load(e: &mut Emitter<'_>, b: BufferId, access: &Access, dtype: DType) -> Part<Made> {
    let moves = |d: &usize| e.s.dims[*d].axes.iter().any(|a| !access.strides[*a].is_const(0));
    let varies = (0..e.s.dims.len()).filter(moves).fold(0, |m, d| m | 1 << d);
    let dim_of = |axis: usize| e.s.dims.iter().position(|d| d.axes.contains(&axis));
    let moved = |axis: usize| dim_of(axis).is_some_and(|d| varies >> d & 1 == 1);
    // Where the other masks hold somewhere, those of what moves the address are enough to stay inside of the buffer.
    let holds = |m: &Mask| moved(m.axis) || (&m.high - &m.low).as_const().is_some_and(|n| n > 0);
    if e.device.repeats_elements || !access.masks.iter().all(holds) {
        let (place, mask, dims, depth) = place(e, b, access, 0, None)?;
        return loaded(e, b, place, &mask, dtype).map(|text| (text, dims, depth));
    }
    let (within, beyond): (Vec<Value>, Vec<Value>) = masks(e, access)?.into_iter().partition(|m| m.dims & !varies == 0);
    let (place, mask, dims, depth) = place_masked(e, b, access, Some(within), 0, None)?;
    let text = loaded(e, b, place, &mask, dtype)?;
    if beyond.is_empty() {
        return Ok((text, dims, depth));
    }
    let inside = joined(&texts(&beyond));
    let text = match dtype {
        DType::Bool => format!("{} & {inside}", parenthesised(&text)),
        _ => format!("tl.where({inside}, {text}, {})", if dtype.is_float() { "0.0" } else { "0" }),
    };
    Ok((text, dims | dims_of(&beyond), depth.max(depth_of(&beyond))))
}

/// A load, in the dtype in which values are held.
fn loaded(e: &Emitter<'_>, b: BufferId, place: String, mask: &[String], dtype: DType) -> Part<String> {
    let memory = e.buffer(b).dtype;
    if e.device.forbidden_dtypes.contains(&memory) {
        return Err(crate::error::Missing::DType(memory));
    }
    let other = if memory.is_float() { "0.0" } else { "0" };
    let call = match mask.is_empty() {
        true => format!("tl.load({place})"),
        false => format!("tl.load({place}, mask={}, other={other})", joined(mask)),
    };
    let held = match memory {
        DType::Bool => format!("{call} != 0"),
        DType::BF16 | DType::F16 => format!("{call}.to(tl.float32)"),
        _ => call,
    };
    expression::convert(&held, memory, dtype, false)
}

/// A load at a loaded index. An index out of range is reported and nothing is read there.
pub(crate) fn load_at(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    at: OpId,
    stride: &Dim,
    size: &Dim,
    dtype: DType,
) -> Part<Made> {
    if !e.device.indexed_loads {
        return construct(format!("{} does not fuse loads at a loaded index", e.device.name));
    }
    let found = e.tensor(at)?;
    let (inside, address) = checked_index(e, &found, stride, size)?;
    let (place, mut mask, dims, mut depth) = place(e, b, access, found.dims, Some(&address))?;
    depth = depth.max(found.depth);
    let mut bad = mask.clone();
    bad.push(format!("({} == 0)", inside.text));
    let looked_at = dims_of(&masks(e, access)?);
    let message = format!("index out of range of {}", e.buffer(b).name);
    // Reported once for the index: where it is looked at, not for every element read.
    let dims_of_index = found.dims | looked_at;
    let bad: Vec<String> = bad.into_iter().filter(|m| !is_bound_outside(e, m, dims_of_index)).collect();
    let at_depth = depth_for(e, dims_of_index, inside.depth)?;
    e.fault(&joined(&bad), dims_of_index, at_depth, message);
    mask.push(inside.text);
    loaded(e, b, place, &mask, dtype).map(|text| (text, dims, depth))
}

fn depth_for(e: &Emitter<'_>, dims: u32, least: usize) -> Part<usize> {
    Ok(e.depth_of(dims)?.max(least))
}

/// A bound of a dim that is none of these.
fn is_bound_outside(e: &Emitter<'_>, mask: &str, dims: u32) -> bool {
    bits(!dims & ((1 << e.s.dims.len()) - 1)).any(|d| mask == bound_name(e.s.dims[d].name))
}

/// Whether a loaded index is in range, and what it adds to an address.
pub(crate) fn checked_index(e: &mut Emitter<'_>, index: &Value, stride: &Dim, size: &Dim) -> Part<(Value, Value)> {
    let limit = e.size(size);
    let name = e.name(&format!("{}_inside", index.text));
    e.line(index.depth, format!("{name} = ({} >= 0) & ({} < {limit})", index.text, index.text));
    let inside = Value { text: name, ..index.clone() };
    let step = e.size(stride);
    let narrow = if e.wide { index.text.clone() } else { format!("{}.to(tl.int32)", index.text) };
    let text = if stride.is_const(1) { narrow } else { format!("{step} * {narrow}") };
    Ok((inside, Value { text, ..index.clone() }))
}

/// `offset + Σ stride · index` as a value, 0 where a mask does not hold.
pub(crate) fn axis_index(e: &mut Emitter<'_>, access: &Access, dtype: DType) -> Part<Made> {
    let (text, mut dims, mut depth) = linear(e, access)?;
    let masks = masks(e, access)?;
    let mask = texts(&masks);
    dims |= dims_of(&masks);
    depth = depth.max(depth_of(&masks));
    let text = if dims == 0 || text.is_empty() {
        let offset = if text.is_empty() { "0".to_string() } else { text };
        format!("{offset} + tl.zeros({}, tl.int32)", e.shape(0))
    } else {
        text
    };
    let text = if mask.is_empty() { text } else { format!("tl.where({}, {text}, 0)", joined(&mask)) };
    if dtype == DType::Bool {
        return Ok((format!("{} != 0", parenthesised(&text)), dims, depth));
    }
    Ok((format!("({text}).to({})", expression::held(dtype)?), dims, depth))
}

/// Stores a value of `from`; it is rounded to the buffer's dtype.
pub(crate) fn store(e: &mut Emitter<'_>, b: BufferId, access: &Access, value: &Value, from: DType) -> Part<()> {
    let memory = e.buffer(b).dtype;
    if e.device.forbidden_dtypes.contains(&memory) {
        return Err(crate::error::Missing::DType(memory));
    }
    let address_dims = e.dims_of(access);
    let outside = value.dims & !address_dims;
    if outside != 0 {
        return construct(format!("a store into {} does not vary with its value", e.buffer(b).name));
    }
    let strided = access.strides.iter().all(|s| s.as_const().is_none_or(|s| s != 1));
    let offset = (strided && !access.offset.is_const(0) && !e.device.interleaves_stores).then(|| Value {
        text: e.hidden(&access.offset),
        dims: 0,
        depth: 0,
        literal: false,
    });
    let shifted = Access { offset: Dim::ZERO, ..access.clone() };
    let at = if offset.is_some() { &shifted } else { access };
    let (mut place, mask, _, mut depth) = place(e, b, at, 0, offset.as_ref())?;
    depth = depth.max(value.depth);
    let text = expression::rounded(&value.text, from, memory)?;
    if address_dims == 0 || bits(address_dims).all(|d| e.s.dims[d].position.is_none()) {
        place = format!("{place} + tl.zeros({}, tl.int32)", e.shape(0));
    }
    let mask = if mask.is_empty() { String::new() } else { format!(", mask={}", joined(&mask)) };
    e.line(depth, format!("tl.store({place}, {text}{mask})"));
    Ok(())
}

/// Adds a value atomically at a loaded index; `dtypes` are the value's and the memory's.
pub(crate) fn add(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    step: &Value,
    inside: &Value,
    value: &Value,
    dtypes: (DType, DType),
) -> Part<()> {
    let dims = value.dims | step.dims;
    let (place, mut mask, dims, depth) = place(e, b, access, dims, Some(step))?;
    mask.push(inside.text.clone());
    let text = expression::convert(&e.spread(value, dims), dtypes.0, dtypes.1, false)?;
    let depth = depth.max(value.depth);
    e.line(depth, format!("tl.atomic_add({place}, {text}, mask={}, sem=\"relaxed\")", joined(&mask)));
    Ok(())
}

/// Stores a value of `from` in the row that `row` adds to the address, where a condition of the program holds.
pub(crate) fn store_where(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    row: &Value,
    condition: &str,
    value: &Value,
    from: DType,
) -> Part<()> {
    let (place, mut mask, _, depth) = place(e, b, access, value.dims, Some(row))?;
    mask.insert(0, condition.to_string());
    let text = expression::rounded(&value.text, from, e.buffer(b).dtype)?;
    let depth = depth.max(value.depth);
    e.line(depth, format!("tl.store({place}, {text}, mask={})", joined(&mask)));
    Ok(())
}

/// Address of a slot of scratch memory: `slot` is the text of its number, `length` that of its elements.
pub(crate) fn store_slot(
    e: &mut Emitter<'_>,
    b: BufferId,
    access: &Access,
    slot: &str,
    value: &Value,
    from: DType,
) -> Part<()> {
    let extra = Value { text: slot.to_string(), dims: 0, depth: e.depth_of(0)?, literal: false };
    let (mut place, mask, dims, depth) = place(e, b, access, 0, Some(&extra))?;
    if bits(dims).all(|d| e.s.dims[d].position.is_none()) {
        place = format!("{place} + tl.zeros({}, tl.int32)", e.shape(0));
    }
    let text = expression::rounded(&value.text, from, e.buffer(b).dtype)?;
    let mask = if mask.is_empty() { String::new() } else { format!(", mask={}", joined(&mask)) };
    let depth = depth.max(value.depth).max(e.depth());
    e.line(depth, format!("tl.store({place}, {text}{mask})"));
    Ok(())
}
