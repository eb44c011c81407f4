//! Cuts a routed joint graph into a forward and a backward graph.
//!
//! What the backward needs from the forward is chosen as a minimum cut: saving a value costs its bytes, recomputing a
//! cheap operator costs nothing (its operands must then be available in turn), and what is dear, drawn at random or
//! ordered is never run twice. Saving a graph input costs almost nothing, since it is alive anyway; one that the forward
//! overwrites, or a view of it, is saved as a copy taken before the write. A large value that the forward would store for
//! this alone costs a little more than one that is in memory anyway.

use crate::budget::tiers;
use crate::flow::{INFINITE, Network};
use crate::memory;
use crate::simplify::{effect, must_run};
use crate::stored::stored_anyway;
use permalloy_ir::{
    Arg, Def, Device, Dim, Graph, GraphKind, Input, Missing, Node, NodeId, Op, Output, PrimKind, PrimOp, Rebuild, Role,
    Symbol, SymbolValues, TensorType, ValueId, needed, output_values,
};
use permalloy_ops::{Cost, Effect};
use std::collections::BTreeSet;
use std::fmt;

/// The two graphs and what passes between them.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Outputs: the joint's forward outputs, then the saved tensors, then the saved integers.
    pub forward: Graph,
    /// Inputs: saved integers, saved tensors, then tangents.
    pub backward: Graph,
    /// Names of the saved values, as in the joint graph, with their types.
    pub saved: Vec<(String, TensorType)>,
    /// Size symbols that the backward needs.
    pub saved_ints: Vec<Dim>,
    /// Bytes of the saved values that are not graph inputs (by hint, for symbolic sizes).
    pub saved_bytes: i64,
}

/// The graph cannot be cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionError(pub String);

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PartitionError {}

impl From<Missing> for PartitionError {
    fn from(e: Missing) -> PartitionError {
        PartitionError(e.to_string())
    }
}

/// Cuts a joint graph. `known` says of a value name whether the caller can describe it; asked only for symbolic shapes.
/// `again` says of a node that it may be run again in the backward, whatever it costs.
/// `memory_budget`: the part of the bytes that would be saved at best speed (1) that may be saved, for more work in the
/// backward; at 0 as little is saved as can be.
pub fn partition(
    joint: &Graph,
    known: &dyn Fn(&str) -> bool,
    again: &dyn Fn(NodeId) -> bool,
    memory_budget: f64,
) -> Result<Partition, PartitionError> {
    let GraphKind::Joint { forward_outputs } = joint.kind else {
        return Err(PartitionError(format!("{} is not a joint graph", joint.name)));
    };
    let hints = permalloy_ir::hints(&joint.symbols);
    let mut facts = Facts::of(joint, forward_outputs)?;
    for (id, _) in joint.nodes().filter(|(id, _)| again(*id)) {
        facts.recomputable[id.0 as usize] = true;
    }
    let saved = saved_within(joint, &mut facts, &hints, known, memory_budget);
    let keep = |v: &ValueId| Kept::of(joint, *v, &facts, &hints);
    let kept: Vec<Kept> = saved.iter().map(keep).collect();
    let saved_ints = symbols_of_backward(joint, &facts, &saved, forward_outputs);

    // An effect is on the side of the cut where its operands are, read or not.
    let effects =
        |id: NodeId, n: &Node, backward: bool| facts.backward_only[id.0 as usize] == backward && must_run(&n.op);

    let mut forward = Rebuild::part_of(joint, &format!("{}_forward", joint.name), GraphKind::Forward);
    for input in joint.inputs.iter().filter(|i| !is_tangent(i)) {
        forward.input(input);
    }
    let copies = save_copies(&mut forward, &kept)?;
    let wanted = output_values(&joint.outputs[..forward_outputs]).chain(saved.iter().copied());
    copy_needed(&mut forward, wanted, |id, n| effects(id, n, false))?;
    for o in &joint.outputs[..forward_outputs] {
        forward.output(o)?;
    }
    for (k, copy) in kept.iter().zip(copies) {
        save(&mut forward, k, copy)?;
    }
    forward.graph.outputs.extend(saved_ints.iter().cloned().map(Output::Int));

    let mut backward = Rebuild::part_of(joint, &format!("{}_backward", joint.name), GraphKind::Backward);
    for d in &saved_ints {
        backward.graph.add_int_input(d.clone());
    }
    for k in &kept {
        let input = backward.input_for(k.value, k.ty.clone(), Role::Primal);
        if k.copy {
            backward.reserve_names();
            backward.graph.rename(input, &k.name);
        }
    }
    for input in joint.inputs.iter().filter(|i| is_tangent(i)) {
        backward.input(input);
    }
    let outputs = &joint.outputs[forward_outputs..];
    // On CUDA, and where memory is short, what is computed once more comes late, which lowers the peak of memory; on the
    // CPU it keeps its place.
    let late = on_cuda(joint) || memory_budget < 1.0;
    let own = |id: NodeId| !late || facts.backward_only[id.0 as usize];
    copy_late(&mut backward, output_values(outputs), |id, n| effects(id, n, true), own)?;
    for o in outputs {
        backward.output(o)?;
    }
    Ok(Partition {
        saved_bytes: bytes_of(joint, &saved, &facts, &hints),
        saved: kept.into_iter().map(|k| (k.name, k.ty)).collect(),
        saved_ints,
        forward: forward.graph,
        backward: backward.graph,
    })
}

/// The values to save within a budget.
fn saved_within(
    joint: &Graph,
    facts: &mut Facts,
    hints: &SymbolValues,
    known: &dyn Fn(&str) -> bool,
    budget: f64,
) -> Vec<ValueId> {
    let mut saved = choose_saved(joint, facts, hints, known);
    if budget >= 1.0 {
        return saved;
    }
    let mut bytes = bytes_of(joint, &saved, facts, hints);
    let limit = bytes as f64 * budget;
    for tier in tiers(joint, &facts.backward_only, &facts.recomputable, hints) {
        if bytes as f64 <= limit {
            break;
        }
        tier.iter().for_each(|n| facts.recomputable[n.0 as usize] = true);
        let fewer = choose_saved(joint, facts, hints, known);
        let n = bytes_of(joint, &fewer, facts, hints);
        if n < bytes {
            (saved, bytes) = (fewer, n);
        }
    }
    saved
}

/// Bytes of saved values beside the inputs that are alive anyway.
fn bytes_of(joint: &Graph, saved: &[ValueId], facts: &Facts, hints: &SymbolValues) -> i64 {
    let alive = |v: ValueId| matches!(joint.value(v).def, Def::Input(_)) && !facts.overwritten[v.0 as usize];
    saved.iter().filter(|v| !alive(**v)).map(|v| size(joint.ty(*v), hints)).sum()
}

/// A saved value as it passes from the forward to the backward.
struct Kept {
    value: ValueId,
    name: String,
    ty: TensorType,
    /// The forward overwrites the memory it lies in: a copy is kept.
    copy: bool,
}

impl Kept {
    fn of(joint: &Graph, value: ValueId, facts: &Facts, hints: &SymbolValues) -> Kept {
        let copy = facts.overwritten[value.0 as usize];
        let is_input = matches!(joint.value(value).def, Def::Input(_));
        let (mut name, mut ty) = (joint.value(value).name.to_string(), joint.ty(value).clone());
        if copy {
            name.push_str(".before");
        }
        // A fresh tensor has an element for each index, whatever the strides of the value it is made from.
        if copy || !is_input && ty.strides.as_ref().is_some_and(|s| memory::overlap(&ty.shape, s, hints)) {
            ty.strides = None;
        }
        Kept { value, name, ty, copy }
    }
}

fn on_cuda(graph: &Graph) -> bool {
    graph.values().any(|(_, v)| matches!(v.ty.device, Device::Cuda(_)))
}

fn size(ty: &TensorType, hints: &SymbolValues) -> i64 {
    ty.numel().eval(hints).unwrap_or(1).max(1) * ty.dtype.size() as i64
}

/// Which side of the cut each node can be on.
struct Facts {
    /// Reads a tangent, directly or not.
    backward_only: Vec<bool>,
    /// Value is read by the backward side and could be made by the forward.
    needed: Vec<bool>,
    /// Node may be run again in the backward.
    recomputable: Vec<bool>,
    /// Node is among the ancestors of a backward output.
    in_backward: Vec<bool>,
    /// Value lies in the memory of an input that the forward writes to.
    overwritten: Vec<bool>,
    /// Value is in memory after the forward whether or not it is saved.
    stored: Vec<bool>,
}

impl Facts {
    fn of(joint: &Graph, forward_outputs: usize) -> Result<Facts, PartitionError> {
        let mut tangent = vec![false; joint.value_count()];
        for i in &joint.inputs {
            if let Input::Tensor { value, role: Role::Tangent } = i {
                tangent[value.0 as usize] = true;
            }
        }
        let mut backward_only = vec![false; joint.node_count()];
        for (id, n) in joint.nodes() {
            let mut reads = false;
            n.for_each_operand(|v| reads |= tangent[v.0 as usize]);
            if reads {
                backward_only[id.0 as usize] = true;
                n.results.iter().flatten().for_each(|r| tangent[r.0 as usize] = true);
            }
        }
        for v in output_values(&joint.outputs[..forward_outputs]) {
            if tangent[v.0 as usize] {
                return Err(PartitionError(format!("forward output %{} depends on a tangent", joint.value(v).name)));
            }
        }
        let mut needed = vec![false; joint.value_count()];
        let mut alive = vec![false; joint.value_count()];
        for v in output_values(&joint.outputs[forward_outputs..]) {
            alive[v.0 as usize] = true;
            needed[v.0 as usize] = !tangent[v.0 as usize];
        }
        let mut in_backward = vec![false; joint.node_count()];
        for (id, n) in joint.nodes().rev() {
            let i = id.0 as usize;
            let read = n.results.iter().flatten().any(|r| alive[r.0 as usize]);
            let must = backward_only[i] && must_run(&n.op);
            if !read && !must {
                continue;
            }
            in_backward[i] = true;
            n.for_each_operand(|v| {
                alive[v.0 as usize] = true;
                needed[v.0 as usize] |= backward_only[i] && !tangent[v.0 as usize];
            });
        }
        let mut recomputable: Vec<bool> = joint.nodes().map(|(_, n)| recomputable(n)).collect();
        if on_cuda(joint) {
            // What the backward alone reads may be made in the forward, too, but is not of it.
            let outputs = output_values(&joint.outputs[..forward_outputs]);
            let effects = |id: NodeId, n: &Node| !backward_only[id.0 as usize] && must_run(&n.op);
            let forward = permalloy_ir::needed(joint, outputs, |_| false, effects);
            for n in far_readers(joint, &forward, &recomputable) {
                recomputable[n.0 as usize] = false;
            }
        }
        let overwritten = overwritten(joint, &backward_only);
        let stored = stored_anyway(joint, forward_outputs, |n| !backward_only[n.0 as usize]);
        Ok(Facts { backward_only, needed, recomputable, in_backward, overwritten, stored })
    }
}

/// Bytes of a value from which on it matters how far from each other it is read.
const FAR_BYTES: i64 = 1 << 20;
/// Readers, and their readers, that are looked at for one value.
const FAR_SEARCH: usize = 64;

/// Nodes of the forward that read a value again after something that does not fuse: the additions of a residual stream.
/// Computing them once more would take the whole stream from its beginning, and store it all the same, since each part is
/// read at another time.
fn far_readers(joint: &Graph, forward: &[bool], recomputable: &[bool]) -> Vec<NodeId> {
    let hints = permalloy_ir::hints(&joint.symbols);
    let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); joint.value_count()];
    for (id, n) in joint.nodes().filter(|(id, _)| forward[id.0 as usize]) {
        n.for_each_operand(|v| {
            if readers[v.0 as usize].last() != Some(&id) {
                readers[v.0 as usize].push(id);
            }
        });
    }
    // What is made from sizes and constants alone has no memory to be read from: each reader makes its own.
    let mut from_nothing = vec![false; joint.value_count()];
    for (id, n) in joint.nodes() {
        let mut nothing = recomputable[id.0 as usize];
        n.for_each_operand(|v| nothing &= from_nothing[v.0 as usize]);
        n.results.iter().flatten().for_each(|r| from_nothing[r.0 as usize] = nothing);
    }
    let mut far = Vec::new();
    for (v, _) in joint.values() {
        let direct = &readers[v.0 as usize];
        let memory = joint.ty(memory::root(joint, v));
        if direct.len() < 2 || from_nothing[v.0 as usize] || size(memory, &hints) < FAR_BYTES {
            continue;
        }
        let last = direct[direct.len() - 1];
        // The first node after the value, in the graph's order, that its readers do not fuse with.
        let mut ahead: BTreeSet<NodeId> = direct.iter().copied().collect();
        let mut seen = 0;
        let first = loop {
            let Some(n) = ahead.pop_first().filter(|n| *n < last && seen < FAR_SEARCH) else { break None };
            seen += 1;
            let fuses = match &joint.node(n).op {
                Op::Prim(_) => true,
                Op::External(_) => recomputable[n.0 as usize],
            };
            if !fuses {
                break Some(n);
            }
            let results = joint.node(n).results.iter().flatten();
            ahead.extend(results.flat_map(|r| readers[r.0 as usize].iter().copied()));
        };
        if let Some(first) = first {
            far.extend(direct.iter().copied().filter(|n| *n > first && recomputable[n.0 as usize]));
        }
    }
    far
}

/// Inputs that a node of the forward writes to, with their views.
fn overwritten(joint: &Graph, backward_only: &[bool]) -> Vec<bool> {
    let mut out = vec![false; joint.value_count()];
    for (id, n) in joint.nodes() {
        if effect(&n.op) == Effect::Mutates && !backward_only[id.0 as usize] {
            // Operators that write say which argument by position: it is the first one, a list for foreach forms.
            let first = n.args.first().map(arg_values).unwrap_or_default();
            first.into_iter().for_each(|v| out[memory::root(joint, v).0 as usize] = true);
        }
    }
    for (v, _) in joint.values() {
        if let Some(up) = memory::viewed(joint, v) {
            out[v.0 as usize] |= out[up.0 as usize];
        }
    }
    out
}

fn arg_values(a: &Arg) -> Vec<ValueId> {
    match a {
        Arg::Value(v) => vec![*v],
        Arg::List(items) => items.iter().flat_map(arg_values).collect(),
        _ => vec![],
    }
}

/// Cheap enough, and safe, to run twice.
fn recomputable(n: &Node) -> bool {
    match &n.op {
        Op::Prim(p) => match p.kind() {
            PrimKind::Reduce | PrimKind::Scan => false,
            PrimKind::Index => matches!(p, PrimOp::Gather | PrimOp::Take),
            _ => *p != PrimOp::Concat,
        },
        Op::External(name) => permalloy_ops::lookup(name)
            .is_some_and(|d| d.effect == Effect::Pure && matches!(d.cost, Cost::View | Cost::Pointwise)),
    }
}

fn choose_saved(joint: &Graph, facts: &Facts, hints: &SymbolValues, known: &dyn Fn(&str) -> bool) -> Vec<ValueId> {
    let values = joint.value_count();
    let (source, sink) = (2 * values, 2 * values + 1);
    let mut net = Network::new(2 * values + 2);
    let mut used = vec![false; values];
    for (v, value) in joint.values() {
        let i = v.0 as usize;
        let (inside, outside) = (2 * i, 2 * i + 1);
        let node = match value.def {
            Def::Node(n, _) => Some(n),
            Def::Input(_) => None,
        };
        let of_backward = match value.def {
            Def::Node(n, _) => facts.backward_only[n.0 as usize],
            Def::Input(i) => is_tangent(&joint.inputs[i as usize]),
        };
        if of_backward {
            continue;
        }
        used[i] = true;
        let describable = value.ty.shape.iter().all(|d| d.as_const().is_some()) || known(&value.name);
        let view = joint.producer(v).is_some_and(|n| n.prim().is_some_and(|p| p.kind() == PrimKind::View));
        let cost = match node {
            _ if facts.overwritten[i] => 2 + size(&value.ty, hints) as u64,
            None => 1,
            // A view saved is a view copied: its bytes are written twice, so its base is preferred up to twice its size.
            Some(_) if view => 3 + 2 * size(&value.ty, hints) as u64,
            Some(_) if facts.stored[i] => 2 + size(&value.ty, hints) as u64,
            Some(_) => 2 + with_its_store(size(&value.ty, hints)) as u64,
        };
        let free = joint.producer(v).is_some_and(|n| n.prim().is_some_and(|p| p.kind() == PrimKind::Source));
        net.add_edge(inside, outside, if describable && !free { cost } else { INFINITE });
        match node {
            None => net.add_edge(source, inside, INFINITE),
            Some(n) => {
                if !facts.recomputable[n.0 as usize] {
                    net.add_edge(source, inside, INFINITE);
                }
                // Running the node again needs all of its operands.
                joint.node(n).for_each_operand(|o| net.add_edge(2 * o.0 as usize + 1, inside, INFINITE));
            }
        }
        if facts.needed[i] {
            net.add_edge(outside, sink, INFINITE);
        }
    }
    let side = net.min_cut(source, sink);
    joint
        .values()
        .map(|(v, _)| v)
        .filter(|v| used[v.0 as usize] && side[2 * v.0 as usize] && !side[2 * v.0 as usize + 1])
        .collect()
}

/// The cost of a value that the forward would store for the backward alone: of two large values of about one size, one
/// that is in memory anyway is kept.
fn with_its_store(bytes: i64) -> i64 {
    const LARGE: i64 = 64 << 10;
    if bytes < LARGE { bytes } else { bytes + bytes / 16 }
}

fn is_tangent(input: &Input) -> bool {
    matches!(input, Input::Tensor { role: Role::Tangent, .. })
}

/// Every symbol that a type or an argument on the backward side mentions.
fn symbols_of_backward(joint: &Graph, facts: &Facts, saved: &[ValueId], forward_outputs: usize) -> Vec<Dim> {
    let mut found: Vec<Symbol> = Vec::new();
    let mut ty = |t: &TensorType| {
        t.shape.iter().chain(t.strides.iter().flatten()).for_each(|d| d.collect_symbols(&mut found));
    };
    saved.iter().for_each(|v| ty(joint.ty(*v)));
    for i in &joint.inputs {
        if let Input::Tensor { value, role: Role::Tangent } = i {
            ty(joint.ty(*value));
        }
    }
    for (id, n) in joint.nodes() {
        if facts.in_backward[id.0 as usize] {
            n.results.iter().flatten().for_each(|r| ty(joint.ty(*r)));
        }
    }
    for (id, n) in joint.nodes() {
        if facts.in_backward[id.0 as usize] {
            n.args.iter().chain(n.kwargs.iter().map(|(_, a)| a)).for_each(|a| arg_symbols(a, &mut found));
        }
    }
    for o in &joint.outputs[forward_outputs..] {
        if let Output::Int(d) = o {
            d.collect_symbols(&mut found);
        }
    }
    let sorted: BTreeSet<Symbol> = found.into_iter().collect();
    sorted.iter().map(|s| Dim::sym(s)).collect()
}

fn arg_symbols(a: &Arg, out: &mut Vec<Symbol>) {
    match a {
        Arg::Int(d) => d.collect_symbols(out),
        Arg::List(items) => items.iter().for_each(|i| arg_symbols(i, out)),
        _ => {}
    }
}

/// Copies the nodes that `wanted` needs, stopping at values already there, and those that `must` names.
fn copy_needed(
    part: &mut Rebuild<'_>,
    wanted: impl Iterator<Item = ValueId>,
    must: impl Fn(NodeId, &Node) -> bool,
) -> Result<(), Missing> {
    let joint = part.old();
    let take = needed(joint, wanted, |v| part.get(v).is_some(), must);
    for (_, n) in joint.nodes().filter(|(id, _)| take[id.0 as usize]) {
        part.copy(n)?;
    }
    Ok(())
}

/// The same, with every node that is not the part's `own` right before the first one that reads it: what is computed once
/// more takes memory no sooner than it must.
fn copy_late(
    part: &mut Rebuild<'_>,
    wanted: impl Iterator<Item = ValueId>,
    must: impl Fn(NodeId, &Node) -> bool,
    own: impl Fn(NodeId) -> bool,
) -> Result<(), Missing> {
    let joint = part.old();
    let take = needed(joint, wanted, |v| part.get(v).is_some(), must);
    let mut done = vec![false; take.len()];
    let mut open: Vec<NodeId> = Vec::new();
    // The last round takes what outputs alone read.
    for late in [false, true] {
        for (id, _) in joint.nodes().filter(|(id, _)| take[id.0 as usize] && (late || own(*id))) {
            open.push(id);
            while let Some(id) = open.last().copied() {
                let before = open.len();
                if !done[id.0 as usize] {
                    joint.node(id).for_each_operand(|v| {
                        if let Def::Node(up, _) = joint.value(v).def
                            && take[up.0 as usize]
                            && !done[up.0 as usize]
                            && part.get(v).is_none()
                        {
                            open.push(up);
                        }
                    });
                }
                if open.len() == before {
                    open.pop();
                    if !std::mem::replace(&mut done[id.0 as usize], true) {
                        part.copy(joint.node(id))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Copies of what lies in overwritten memory. Made before any other node, so that they come before the write.
fn save_copies(forward: &mut Rebuild<'_>, kept: &[Kept]) -> Result<Vec<Option<ValueId>>, Missing> {
    copy_needed(forward, kept.iter().filter(|k| k.copy).map(|k| k.value), |_, _| false)?;
    let copy = |k: &Kept| {
        if !k.copy {
            return Ok(None);
        }
        let v = forward.value(k.value)?;
        let format = ("memory_format".into(), Arg::MemoryFormat("contiguous_format".into()));
        let op = Op::External("aten.clone.default".into());
        forward.reserve_names();
        let result = Some((k.name.as_str().into(), k.ty.clone()));
        let node = forward.graph.add_node(op, vec![Arg::Value(v)], vec![format], vec![result], None);
        Ok(forward.graph.node(node).result())
    };
    kept.iter().map(copy).collect()
}

/// Adds a saved value, or the copy of it, to the outputs.
fn save(forward: &mut Rebuild<'_>, k: &Kept, copy: Option<ValueId>) -> Result<(), Missing> {
    let v = copy.map_or_else(|| forward.value(k.value), Ok)?;
    if copy.is_none() && forward.graph.producer(v).is_some() {
        forward.graph.set_strides(v, k.ty.strides.clone());
    }
    forward.graph.outputs.push(Output::Value(v));
    Ok(())
}
