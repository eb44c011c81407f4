//! Makes a joint graph: gradients of every float input, prim by prim.

use permalloy_ir::{
    Arg, Builder, DType, Dim, Graph, GraphKind, Input, Node, Op, Output, PrimKind, PrimOp, Role, TensorType, ValueId,
};

/// Appends tangents of the float outputs and the nodes of the backward; sets kind and outputs.
pub fn make_joint(graph: &mut Graph, outputs: &[ValueId]) {
    let forward = graph.node_count();
    let inputs: Vec<ValueId> = graph
        .inputs
        .iter()
        .filter_map(|i| if let Input::Tensor { value, .. } = i { Some(*value) } else { None })
        .collect();
    // Nodes refer to inputs by position: tangents come last.
    let mut grads: Vec<Option<ValueId>> = vec![None; graph.value_count()];
    let mut tangents = Vec::new();
    for (i, v) in outputs.iter().enumerate() {
        if graph.dtype(*v).is_float() {
            let ty = TensorType::new(graph.dtype(*v), graph.shape(*v).to_vec());
            tangents.push((*v, graph.add_input(&format!("t{i}"), ty, Role::Tangent)));
        }
    }
    for (v, t) in tangents {
        accumulate(graph, &mut grads, v, t);
    }
    for id in (0..forward).rev() {
        let node = graph.node(permalloy_ir::NodeId(id as u32)).clone();
        let Some(y) = node.result() else { continue };
        let Some(g) = grads[y.0 as usize] else { continue };
        for (x, gx) in operand_gradients(graph, &node, y, g) {
            accumulate(graph, &mut grads, x, gx);
        }
    }
    graph.kind = GraphKind::Joint { forward_outputs: outputs.len() };
    graph.outputs = outputs.iter().map(|v| Output::Value(*v)).collect();
    for x in inputs {
        graph.outputs.push(grads[x.0 as usize].map_or(Output::None, Output::Value));
    }
}

fn accumulate(graph: &mut Graph, grads: &mut [Option<ValueId>], x: ValueId, g: ValueId) {
    let slot = &mut grads[x.0 as usize];
    *slot = Some(match *slot {
        None => g,
        Some(old) => Builder::new(graph).add(old, g),
    });
}

fn operand_gradients(graph: &mut Graph, node: &Node, y: ValueId, g: ValueId) -> Vec<(ValueId, ValueId)> {
    let x: Vec<ValueId> = node.operands();
    if !graph.dtype(y).is_float() {
        return vec![];
    }
    let mut b = Builder::new(graph);
    match &node.op {
        Op::External(name) => {
            let (ga, gb) = (b.transpose(x[1], -1, -2), b.transpose(x[0], -1, -2));
            vec![(x[0], multiply(&mut b, name, g, ga)), (x[1], multiply(&mut b, name, gb, g))]
        }
        Op::Prim(p) => match p.kind() {
            PrimKind::Unary => unary(&mut b, *p, x[0], y, g).map(|gx| vec![(x[0], gx)]).unwrap_or_default(),
            PrimKind::Binary => binary(&mut b, *p, &x, y, g),
            PrimKind::Select if *p == PrimOp::Where => {
                let zero = b.scalar_like(g, 0.0);
                vec![(x[1], b.select(x[0], g, zero)), (x[2], b.select(x[0], zero, g))]
            }
            PrimKind::Select if b.dtype(x[0]).is_float() => {
                let to = b.dtype(x[0]);
                vec![(x[0], b.cast(g, to))]
            }
            PrimKind::Reduce => reduce(&mut b, *p, node, x[0], y, g),
            PrimKind::View => view(&mut b, *p, node, &x, g),
            PrimKind::Index => vec![(x[0], indexed(&mut b, *p, node, &x, g))],
            _ => vec![],
        },
    }
}

fn multiply(b: &mut Builder<'_>, name: &str, l: ValueId, r: ValueId) -> ValueId {
    let (left, right) = (b.shape(l), b.shape(r));
    let mut shape = left;
    let last = shape.len() - 1;
    shape[last] = right[last].clone();
    let strides = Some(permalloy_ir::contiguous_strides(&shape));
    let ty = TensorType { strides, ..TensorType::new(b.dtype(l), shape) };
    b.external(name, vec![Arg::Value(l), Arg::Value(r)], vec![Some(ty)])[0].expect("a product has a result")
}

fn unary(b: &mut Builder<'_>, p: PrimOp, x: ValueId, y: ValueId, g: ValueId) -> Option<ValueId> {
    Some(match p {
        PrimOp::Neg => b.unary(PrimOp::Neg, g),
        PrimOp::Abs => {
            let s = b.unary(PrimOp::Sign, x);
            b.mul(g, s)
        }
        PrimOp::Exp => b.mul(g, y),
        PrimOp::Expm1 => {
            let e = b.add_scalar(y, 1.0);
            b.mul(g, e)
        }
        PrimOp::Log => b.div(g, x),
        PrimOp::Log1p => {
            let x = b.add_scalar(x, 1.0);
            b.div(g, x)
        }
        PrimOp::Sqrt => {
            let half = b.mul_scalar(g, 0.5);
            b.div(half, y)
        }
        PrimOp::Rsqrt => {
            let square = b.mul(y, y);
            let cube = b.mul(square, y);
            let scaled = b.mul_scalar(cube, -0.5);
            b.mul(g, scaled)
        }
        PrimOp::Reciprocal => {
            let square = b.mul(y, y);
            let minus = b.unary(PrimOp::Neg, square);
            b.mul(g, minus)
        }
        PrimOp::Sin => {
            let c = b.unary(PrimOp::Cos, x);
            b.mul(g, c)
        }
        PrimOp::Cos => {
            let s = b.unary(PrimOp::Sin, x);
            let s = b.unary(PrimOp::Neg, s);
            b.mul(g, s)
        }
        PrimOp::Tanh => {
            let square = b.mul(y, y);
            let one = b.scalar_like(y, 1.0);
            let rest = b.sub(one, square);
            b.mul(g, rest)
        }
        PrimOp::Sigmoid => {
            let one = b.scalar_like(y, 1.0);
            let rest = b.sub(one, y);
            let slope = b.mul(y, rest);
            b.mul(g, slope)
        }
        PrimOp::Erf => {
            let square = b.mul(x, x);
            let minus = b.unary(PrimOp::Neg, square);
            let e = b.unary(PrimOp::Exp, minus);
            let e = b.mul_scalar(e, std::f64::consts::FRAC_2_SQRT_PI);
            b.mul(g, e)
        }
        _ => return None,
    })
}

fn binary(b: &mut Builder<'_>, p: PrimOp, x: &[ValueId], y: ValueId, g: ValueId) -> Vec<(ValueId, ValueId)> {
    match p {
        PrimOp::Add => vec![(x[0], g), (x[1], g)],
        PrimOp::Sub => vec![(x[0], g), (x[1], b.unary(PrimOp::Neg, g))],
        PrimOp::Mul => vec![(x[0], b.mul(g, x[1])), (x[1], b.mul(g, x[0]))],
        PrimOp::Div => {
            let ga = b.div(g, x[1]);
            let gb = b.mul(ga, y);
            vec![(x[0], ga), (x[1], b.unary(PrimOp::Neg, gb))]
        }
        PrimOp::Max | PrimOp::Min => {
            let first = b.binary(if p == PrimOp::Max { PrimOp::Ge } else { PrimOp::Le }, x[0], x[1]);
            let zero = b.scalar_like(g, 0.0);
            vec![(x[0], b.select(first, g, zero)), (x[1], b.select(first, zero, g))]
        }
        _ => vec![],
    }
}

fn reduce(b: &mut Builder<'_>, p: PrimOp, node: &Node, x: ValueId, y: ValueId, g: ValueId) -> Vec<(ValueId, ValueId)> {
    let dims = node.ints_attr("dims");
    let shape = b.shape(x);
    let kept: Vec<Dim> =
        (0..shape.len()).map(|d| if dims.contains(&(d as i64)) { Dim::ONE } else { shape[d].clone() }).collect();
    let spread = |b: &mut Builder<'_>, v: ValueId| {
        let v = b.reshape(v, &kept);
        b.expand(v, &shape)
    };
    match p {
        PrimOp::Sum => vec![(x, spread(b, g))],
        PrimOp::Amax | PrimOp::Amin => {
            let (y, g) = (spread(b, y), spread(b, g));
            let hit = b.binary(PrimOp::Eq, x, y);
            let zero = b.scalar_like(g, 0.0);
            vec![(x, b.select(hit, g, zero))]
        }
        _ => vec![],
    }
}

fn view(b: &mut Builder<'_>, p: PrimOp, node: &Node, x: &[ValueId], g: ValueId) -> Vec<(ValueId, ValueId)> {
    let shape = b.shape(x[0]);
    let gx = match p {
        PrimOp::Reshape => b.reshape(g, &shape),
        PrimOp::After => g,
        PrimOp::Permute => {
            let perm = node.ints_attr("perm");
            let mut back = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, p)| back[*p as usize] = i);
            b.permute(g, &back)
        }
        PrimOp::Expand => {
            let to = b.shape(g);
            let dims: Vec<i64> = (0..to.len()).filter(|d| shape[*d] != to[*d]).map(|d| d as i64).collect();
            if dims.is_empty() { g } else { b.sum(g, &dims, true) }
        }
        PrimOp::Slice => unslice(b, node, &shape, g),
        PrimOp::Flip => b.prim(PrimOp::Flip, &[g], vec![("dims", Arg::ints(node.ints_attr("dims")))]),
        PrimOp::Pad => {
            let low = node.dims_attr("low");
            (0..shape.len()).fold(g, |g, d| b.slice(g, d, &low[d], &(&low[d] + &shape[d]), 1))
        }
        _ => {
            let d = node.dim_attr("dim");
            let mut start = Dim::ZERO;
            let mut out = Vec::new();
            for x in x {
                let end = &start + &b.shape(*x)[d];
                out.push((*x, b.slice(g, d, &start, &end, 1)));
                start = end;
            }
            return out;
        }
    };
    vec![(x[0], gx)]
}

/// Zeros with the slice's gradient at its place; with a step, by adding at computed positions.
fn unslice(b: &mut Builder<'_>, node: &Node, shape: &[Dim], g: ValueId) -> ValueId {
    let d = node.dim_attr("dim");
    let one = |name: &str| node.kwarg(name).and_then(Arg::as_dim).expect("a slice has its attributes");
    let (start, end, step) = (one("start"), one("end"), one("step"));
    if step.is_const(1) {
        let mut low = vec![Dim::ZERO; shape.len()];
        let mut high = low.clone();
        low[d] = start;
        high[d] = &shape[d] - &end;
        return b.pad(g, &low, &high);
    }
    let count = b.shape(g)[d].clone();
    let i = b.iota(count.clone());
    let step = b.full(Arg::Int(step), std::slice::from_ref(&count), DType::I64);
    let start = b.full(Arg::Int(start), &[count], DType::I64);
    let i = b.mul(i, step);
    let i = b.add(i, start);
    b.index_sum(g, i, d, shape[d].clone())
}

fn indexed(b: &mut Builder<'_>, p: PrimOp, node: &Node, x: &[ValueId], g: ValueId) -> ValueId {
    let d = node.dim_attr("dim");
    let size = b.shape(x[0]).get(d).cloned().unwrap_or(Dim::ONE);
    match p {
        PrimOp::Take => b.index_sum(g, x[1], d, size),
        PrimOp::Gather => b.scatter_sum(g, x[1], d, size),
        PrimOp::IndexSum => b.take(g, x[1], d),
        _ => b.gather(g, x[1], d),
    }
}
