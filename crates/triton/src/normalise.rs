//! A kernel made plain before it is scheduled: no axes of one point, no operations that nobody reads, neighbouring axes
//! that every access walks as one merged, positions of extremes spelt out.

use crate::error::{Part, construct};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::{Access, Axis, AxisRole, Kernel, KernelOp, OpId, OpKind, Over, Scalar};

/// The plain form. Values and stores are those of the kernel.
pub(crate) fn normalise(kernel: &Kernel) -> Part<Kernel> {
    let mut k = kernel.clone();
    spell_out_positions(&mut k);
    drop_unit_axes(&mut k)?;
    fold_only_stored(&mut k);
    fold_all_as_one(&mut k);
    merge_axes(&mut k);
    drop_dead(&mut k);
    Ok(k)
}

pub(crate) fn access_of(kind: &mut OpKind) -> Option<&mut Access> {
    match kind {
        OpKind::Load { access, .. }
        | OpKind::LoadAt { access, .. }
        | OpKind::AxisIndex { access }
        | OpKind::Store { access, .. } => Some(access),
        _ => None,
    }
}

fn accesses(k: &mut Kernel) -> impl Iterator<Item = &mut Access> {
    k.ops.iter_mut().filter_map(|o| access_of(&mut o.kind))
}

/// `argmax x` is the smallest position whose element equals the maximum, or is NaN if that is: two reductions that every
/// device has.
fn spell_out_positions(k: &mut Kernel) {
    let mut ops: Vec<KernelOp> = Vec::with_capacity(k.ops.len());
    let mut renamed: Vec<OpId> = Vec::with_capacity(k.ops.len());
    for op in &k.ops {
        let mut op = op.clone();
        rename(&mut op.kind, &renamed);
        let operand = op.operands().first().map(|x| ops[x.0 as usize].dtype);
        let mut push = |kind, dtype| {
            ops.push(KernelOp { kind, dtype });
            OpId(ops.len() as u32 - 1)
        };
        let id = match op.kind {
            OpKind::Reduce { op: p @ (PrimOp::Argmax | PrimOp::Argmin), over, x } => {
                let dtype = operand.unwrap_or(DType::F32);
                let extreme = if p == PrimOp::Argmax { PrimOp::Amax } else { PrimOp::Amin };
                let best = push(OpKind::Reduce { op: extreme, over, x }, dtype);
                let mut found = push(OpKind::Binary(PrimOp::Eq, x, best), DType::Bool);
                if dtype.is_float() {
                    let nan = push(OpKind::Unary(PrimOp::IsNan, x), DType::Bool);
                    found = push(OpKind::Binary(PrimOp::Or, found, nan), DType::Bool);
                }
                let position = push(OpKind::AxisIndex { access: position(&k.axes, over) }, DType::I64);
                let none = push(OpKind::Size(folded_size(&k.axes, over)), DType::I64);
                let candidate = push(OpKind::Where(found, position, none), DType::I64);
                push(OpKind::Reduce { op: PrimOp::Amin, over, x: candidate }, op.dtype)
            }
            kind => push(kind, op.dtype),
        };
        renamed.push(id);
    }
    k.ops = ops;
}

pub(crate) fn folds(over: Over, role: AxisRole) -> bool {
    match over {
        Over::Cols => role == AxisRole::Col,
        Over::Rows => role == AxisRole::Row,
        Over::All => role != AxisRole::Batch,
    }
}

/// Row-major position among the folded axes.
fn position(axes: &[Axis], over: Over) -> Access {
    let mut strides = vec![Dim::ZERO; axes.len()];
    let mut stride = Dim::ONE;
    for (a, axis) in axes.iter().enumerate().rev().filter(|(_, x)| folds(over, x.role)) {
        strides[a] = stride.clone();
        stride = &stride * &axis.size;
    }
    Access { offset: Dim::ZERO, strides, masks: vec![] }
}

fn folded_size(axes: &[Axis], over: Over) -> Dim {
    Dim::product(axes.iter().filter(|a| folds(over, a.role)).map(|a| &a.size))
}

fn drop_unit_axes(k: &mut Kernel) -> Part<()> {
    let kept: Vec<usize> = (0..k.axes.len()).filter(|a| !k.axes[*a].size.is_const(1)).collect();
    if kept.len() == k.axes.len() {
        return Ok(());
    }
    for op in &mut k.ops {
        let Some(access) = access_of(&mut op.kind) else { continue };
        let mut never = false;
        for m in access.masks.iter().filter(|m| !kept.contains(&m.axis)) {
            match (m.low.as_const(), m.high.as_const()) {
                (Some(low), Some(high)) => never |= low > 0 || high <= 0,
                _ => return construct("a mask of symbolic bounds on an axis of one point"),
            }
        }
        if never {
            op.kind = OpKind::Const(zero(op.dtype));
            continue;
        }
        access.masks.retain_mut(|m| kept.iter().position(|a| *a == m.axis).map(|a| m.axis = a).is_some());
        access.strides = kept.iter().map(|a| access.strides[*a].clone()).collect();
    }
    k.axes = kept.iter().map(|a| k.axes[*a].clone()).collect();
    Ok(())
}

fn zero(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(false),
        d if d.is_float() => Scalar::Float(0.0),
        _ => Scalar::Int(0),
    }
}

/// Where nothing but stores reads the results, they need not exist before the nest ends: programs may share the work.
fn fold_only_stored(k: &mut Kernel) {
    let of_columns = |o: &KernelOp| match o.kind {
        OpKind::Reduce { over, .. } => Some(over == Over::Cols),
        _ => None,
    };
    if !k.ops.iter().filter_map(of_columns).all(|c| c) {
        return;
    }
    for op in &k.ops {
        let stored = matches!(op.kind, OpKind::Store { .. });
        if !stored && op.operands().iter().any(|x| of_columns(&k.ops[x.0 as usize]).is_some()) {
            return;
        }
    }
    for op in &mut k.ops {
        if let OpKind::Reduce { over, .. } = &mut op.kind {
            *over = Over::All;
        }
    }
}

/// Where every reduction folds rows and columns alike, they are one kind of axis.
fn fold_all_as_one(k: &mut Kernel) {
    let over = |o: &KernelOp| if let OpKind::Reduce { over, .. } = o.kind { Some(over) } else { None };
    let mut kinds = k.ops.iter().filter_map(over).peekable();
    if kinds.peek().is_some() && kinds.all(|o| o == Over::All) {
        for a in &mut k.axes {
            if a.role == AxisRole::Row {
                a.role = AxisRole::Col;
            }
        }
    }
}

/// Merges an axis into the next inner one where every access steps over the inner one as a whole.
fn merge_axes(k: &mut Kernel) {
    let mut outer = k.axes.len().saturating_sub(1);
    while outer > 0 {
        outer -= 1;
        let inner = outer + 1;
        let size = k.axes[inner].size.clone();
        let walks_as_one = |x: &Access| {
            x.strides[outer] == &x.strides[inner] * &size && x.masks.iter().all(|m| m.axis != outer && m.axis != inner)
        };
        if k.axes[outer].role != k.axes[inner].role || !accesses(k).all(|x| walks_as_one(x)) {
            continue;
        }
        for x in accesses(k) {
            x.strides.remove(outer);
            for m in x.masks.iter_mut().filter(|m| m.axis > outer) {
                m.axis -= 1;
            }
        }
        let merged = &k.axes[outer].size * &size;
        k.axes.remove(outer);
        k.axes[outer].size = merged;
    }
}

fn drop_dead(k: &mut Kernel) {
    let mut live = vec![false; k.ops.len()];
    for i in (0..k.ops.len()).rev() {
        live[i] |= matches!(k.ops[i].kind, OpKind::Store { .. });
        if live[i] {
            for o in k.ops[i].operands() {
                live[o.0 as usize] = true;
            }
        }
    }
    let (mut ops, mut renamed) = (Vec::new(), Vec::with_capacity(k.ops.len()));
    for (i, op) in k.ops.iter().enumerate() {
        renamed.push(OpId(ops.len() as u32));
        if live[i] {
            let mut op = op.clone();
            rename(&mut op.kind, &renamed);
            ops.push(op);
        }
    }
    k.ops = ops;
}

fn rename(kind: &mut OpKind, to: &[OpId]) {
    let new = |x: &mut OpId| *x = to[x.0 as usize];
    match kind {
        OpKind::Load { .. } | OpKind::AxisIndex { .. } | OpKind::Const(_) | OpKind::Size(_) => {}
        OpKind::LoadAt { index: x, .. }
        | OpKind::Unary(_, x)
        | OpKind::Cast(x)
        | OpKind::Reduce { x, .. }
        | OpKind::Store { value: x, .. } => new(x),
        OpKind::Binary(_, a, b) => {
            new(a);
            new(b);
        }
        OpKind::Where(c, a, b) => {
            new(c);
            new(a);
            new(b);
        }
    }
}
