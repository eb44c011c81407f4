//! Shapes of graph that have hurt compilers: deep, wide, shared, unrolled.

use permalloy_ir::{Arg, Builder, DType, Dim, Graph, GraphKind, PrimOp, Role, TensorType, ValueId, contiguous_strides};

#[path = "../random/vjp.rs"]
mod vjp;

/// Builds a forward of about as many nodes in an empty graph; gives what it returns.
pub type Family = fn(&mut Graph, usize) -> Vec<ValueId>;

/// A joint graph of about `nodes` nodes (not counting those that a pass adds).
pub fn joint(family: Family, nodes: usize) -> Graph {
    let mut graph = Graph::new("synthetic", GraphKind::Inference);
    // The backward has somewhat more nodes than the forward.
    let outputs = family(&mut graph, nodes * 2 / 5);
    finish(&mut graph, &outputs);
    graph
}

/// Appends the backward.
pub fn finish(graph: &mut Graph, outputs: &[ValueId]) {
    vjp::make_joint(graph, outputs);
}

fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().map(|n| Dim::from(*n)).collect()
}

fn input(g: &mut Graph, name: &str, shape: &[i64]) -> ValueId {
    let shape = dims(shape);
    let strides = Some(contiguous_strides(&shape));
    g.add_input(name, TensorType { strides, ..TensorType::new(DType::F32, shape) }, Role::Primal)
}

fn mm(b: &mut Builder<'_>, x: ValueId, y: ValueId) -> ValueId {
    let (rows, columns) = (b.shape(x), b.shape(y));
    let mut shape = rows;
    let last = shape.len() - 1;
    shape[last] = columns[last].clone();
    let name = if last == 1 { "aten.mm.default" } else { "aten.bmm.default" };
    let strides = Some(contiguous_strides(&shape));
    let ty = TensorType { strides, ..TensorType::new(DType::F32, shape) };
    b.external(name, vec![Arg::Value(x), Arg::Value(y)], vec![Some(ty)])[0].expect("a product has a result")
}

fn layer_norm(b: &mut Builder<'_>, x: ValueId, width: i64) -> ValueId {
    let total = b.sum(x, &[-1], true);
    let mean = b.mul_scalar(total, 1.0 / width as f64);
    let centred = b.sub(x, mean);
    let square = b.mul(centred, centred);
    let total = b.sum(square, &[-1], true);
    let var = b.mul_scalar(total, 1.0 / width as f64);
    let var = b.add_scalar(var, 1e-5);
    let rstd = b.unary(PrimOp::Rsqrt, var);
    b.mul(centred, rstd)
}

/// Blocks of attention and a gated layer.
pub fn transformer(g: &mut Graph, nodes: usize) -> Vec<ValueId> {
    let (tokens, heads, width) = (64, 4, 32);
    let mut x = input(g, "x", &[tokens, width]);
    let mut layer = 0;
    while g.node_count() < nodes {
        let w: Vec<ValueId> = (0..5).map(|i| input(g, &format!("w{layer}_{i}"), &[width, width])).collect();
        let mut b = Builder::new(g);
        let h = layer_norm(&mut b, x, width);
        let split = |b: &mut Builder<'_>, v: ValueId| {
            let v = b.reshape(v, &dims(&[tokens, heads, width / heads]));
            b.permute(v, &[1, 0, 2])
        };
        let (q, k, v) = (mm(&mut b, h, w[0]), mm(&mut b, h, w[1]), mm(&mut b, h, w[2]));
        let (q, k, v) = (split(&mut b, q), split(&mut b, k), split(&mut b, v));
        let kt = b.transpose(k, -1, -2);
        let scores = mm(&mut b, q, kt);
        let scores = b.mul_scalar(scores, 0.35);
        let top = b.reduce(PrimOp::Amax, scores, &[-1], true);
        let scores = b.sub(scores, top);
        let e = b.unary(PrimOp::Exp, scores);
        let total = b.sum(e, &[-1], true);
        let p = b.div(e, total);
        let o = mm(&mut b, p, v);
        let o = b.permute(o, &[1, 0, 2]);
        let o = b.reshape(o, &dims(&[tokens, width]));
        x = b.add(x, o);
        let h = layer_norm(&mut b, x, width);
        let h = mm(&mut b, h, w[3]);
        let gate = b.unary(PrimOp::Sigmoid, h);
        let h = b.mul(h, gate);
        let h = mm(&mut b, h, w[4]);
        x = b.add(x, h);
        layer += 1;
    }
    vec![x]
}

/// Many small parameters, each with its own few operators, and one loss over all.
pub fn wide(g: &mut Graph, nodes: usize) -> Vec<ValueId> {
    let x = input(g, "x", &[16]);
    let mut outputs = Vec::new();
    let mut loss = None;
    let mut i = 0;
    while g.node_count() < nodes {
        let w = input(g, &format!("w{i}"), &[16]);
        let mut b = Builder::new(g);
        let y = b.mul(x, w);
        let y = b.unary(PrimOp::Tanh, y);
        let s = b.sum(y, &[0], false);
        loss = Some(loss.map_or(s, |l| b.add(l, s)));
        if i % 8 == 0 {
            outputs.push(y);
        }
        i += 1;
    }
    outputs.extend(loss);
    outputs
}

/// Each value is made of the two before: inlined, it would be exponential.
pub fn fibonacci(g: &mut Graph, nodes: usize) -> Vec<ValueId> {
    let (mut x, mut y) = (input(g, "x", &[16, 8]), input(g, "y", &[16, 8]));
    let mut b = Builder::new(g);
    while b.graph.node_count() < nodes {
        let sum = b.add(x, y);
        let next = b.unary(PrimOp::Tanh, sum);
        (x, y) = (y, next);
    }
    vec![y]
}

/// A recurrent cell step after step, with weights shared by all and the states put together at the end.
pub fn gru(g: &mut Graph, nodes: usize) -> Vec<ValueId> {
    let (batch, width) = (4, 8);
    let steps = (nodes / 24).max(1) as i64;
    let x = input(g, "x", &[steps, batch, width]);
    let (wi, wh) = (input(g, "wi", &[width, 3 * width]), input(g, "wh", &[width, 3 * width]));
    let mut h = input(g, "h", &[batch, width]);
    let mut b = Builder::new(g);
    let mut states = Vec::new();
    let part =
        |b: &mut Builder<'_>, v: ValueId, i: i64| b.slice(v, 1, &Dim::from(i * width), &Dim::from((i + 1) * width), 1);
    for t in 0..steps {
        let xt = b.slice(x, 0, &Dim::from(t), &Dim::from(t + 1), 1);
        let xt = b.reshape(xt, &dims(&[batch, width]));
        let (gi, gh) = (mm(&mut b, xt, wi), mm(&mut b, h, wh));
        let gate = |b: &mut Builder<'_>, i: i64| {
            let (a, c) = (part(b, gi, i), part(b, gh, i));
            let s = b.add(a, c);
            b.unary(PrimOp::Sigmoid, s)
        };
        let (reset, update) = (gate(&mut b, 0), gate(&mut b, 1));
        let (a, c) = (part(&mut b, gi, 2), part(&mut b, gh, 2));
        let c = b.mul(reset, c);
        let new = b.add(a, c);
        let new = b.unary(PrimOp::Tanh, new);
        let off = b.sub(h, new);
        let off = b.mul(update, off);
        h = b.add(new, off);
        states.push(b.reshape(h, &dims(&[1, batch, width])));
    }
    vec![b.concat(&states, 0)]
}
