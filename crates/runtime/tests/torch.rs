//! Operators of PyTorch's, called from Rust. Set `PERMALLOY_TEST_LIBTORCH` to the path of `libtorch_cpu.so` to run these.

mod common;

use common::{P, Points, c};
use permalloy_ir::{DType, PrimOp};
use permalloy_loops::kernel::*;
use permalloy_runtime::engine::TileEngine;
use permalloy_runtime::provider::{NativeRoute, Provider, PythonOp, ResolvedCall};
use permalloy_runtime::torch::{TorchProvider, TorchTensor};
use permalloy_runtime::{Executable, RunError, RunInput, RunOutput, TensorHandle};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Schemas as PyTorch 2.11 prints them, and a stand-in for Python.
struct Schemas {
    calls: AtomicUsize,
}

const SCHEMAS: &[(&str, &str)] = &[
    ("aten.mm.default", "aten::mm(Tensor self, Tensor mat2) -> Tensor"),
    ("aten.mul.Scalar", "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor"),
    (
        "aten.addmm.default",
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    ),
    ("aten.index.Tensor", "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"),
    ("aten._unsafe_index.Tensor", "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"),
    ("aten.cat.default", "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"),
    ("aten.stack.default", "aten::stack(Tensor[] tensors, int dim=0) -> Tensor"),
    ("aten.unbind.int", "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"),
    ("aten.where.self", "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"),
    (
        "aten.sum.dim_IntList",
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    ),
    ("aten.div.Tensor_mode", "aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor"),
    (
        "aten.native_layer_norm.default",
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    ),
    (
        "aten.convolution.default",
        "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    ),
    (
        "aten.convolution_backward.default",
        "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    ),
    (
        "aten.max_pool2d_with_indices.default",
        "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=[0, 0], int[2] dilation=[1, 1], bool ceil_mode=False) -> (Tensor, Tensor)",
    ),
    (
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
    ),
    ("aten.t.default", "aten::t(Tensor(a) self) -> Tensor(a)"),
    ("aten.relu_.default", "aten::relu_(Tensor(a!) self) -> Tensor(a!)"),
    ("aten.native_dropout.default", "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"),
    (
        "aten._to_copy.default",
        "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    ),
];

impl PythonOp for Schemas {
    fn schema(&self, op: &str) -> Option<String> {
        SCHEMAS.iter().find(|(n, _)| *n == op).map(|(_, s)| s.to_string())
    }

    fn call(&self, call: &ResolvedCall, _: &[&TensorHandle]) -> Result<Vec<Option<TensorHandle>>, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Err(format!("python says no to {}", call.op))
    }
}

/// The provider, or None with a note when no libtorch was named. Tests that count handles hold the lock.
fn provider() -> Option<(Arc<TorchProvider>, std::sync::MutexGuard<'static, ()>)> {
    static LOCK: Mutex<()> = Mutex::new(());
    let Some(path) = std::env::var_os("PERMALLOY_TEST_LIBTORCH") else {
        eprintln!("skipped: PERMALLOY_TEST_LIBTORCH is not set");
        return None;
    };
    let lock = LOCK.lock().unwrap_or_else(|e| e.into_inner());
    let python = Arc::new(Schemas { calls: AtomicUsize::new(0) });
    let provider = TorchProvider::new(Some(path.as_ref()), python).expect("libtorch loads");
    Some((Arc::new(provider), lock))
}

fn make<T: Copy>(p: &TorchProvider, dtype: DType, shape: &[i64], values: &[T]) -> RunInput {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    let t = p.empty(dtype, shape, &strides).unwrap();
    assert_eq!((size_of::<T>(), shape.iter().product::<i64>()), (dtype.size(), values.len() as i64));
    // SAFETY: a fresh dense tensor of that many elements of that size.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), t.data_ptr().cast(), values.len()) };
    RunInput::Tensor(t)
}

fn tensor(o: &RunOutput) -> &TensorHandle {
    match o {
        RunOutput::Tensor(t) => t,
        other => panic!("{other:?}"),
    }
}

fn read<T: Copy>(o: &RunOutput) -> Vec<T> {
    let t = tensor(o);
    let n: i64 = t.shape().iter().product();
    assert_eq!(Some(size_of::<T>()), t.dtype().map(DType::size));
    // SAFETY: tests return dense tensors.
    (0..n as usize).map(|i| unsafe { *t.data_ptr().cast::<T>().add(i) }).collect()
}

/// A program of one native operator; inputs are given with dtype and shape, and outputs likewise.
fn one_op(
    p: &Arc<TorchProvider>,
    op: &str,
    inputs: &[(DType, &[i64])],
    args: impl FnOnce(&[NativeArg]) -> Vec<NativeArg>,
    kwargs: Vec<(&str, NativeArg)>,
    outputs: &[Option<(DType, &[i64])>],
) -> Result<Executable, RunError> {
    let mut b = P::new("one");
    let dims = |shape: &[i64]| shape.iter().map(|n| c(*n)).collect::<Vec<_>>();
    let ins: Vec<_> = inputs.iter().map(|(d, s)| b.typed_input("x", *d, &dims(s))).collect();
    let ins: Vec<_> = ins.into_iter().map(|i| b.t(i)).collect();
    let outs: Vec<_> = (outputs.iter())
        .map(|o| o.map(|(d, s)| b.buffer("y", d, &dims(s), &common::dense(&dims(s)), BufferKind::Output)))
        .collect();
    b.native(op, args(&ins), &outs);
    if let Some(Step::Native(n)) = b.0.steps.last_mut() {
        n.kwargs = kwargs.into_iter().map(|(n, a)| (n.into(), a)).collect();
    }
    outs.iter().flatten().for_each(|o| b.returns(*o));
    Executable::new(Arc::new(b.0), p.clone(), Arc::new(Points))
}

fn ints(v: &[i64]) -> NativeArg {
    NativeArg::List(v.iter().map(|i| NativeArg::Int(c(*i))).collect())
}

fn shim(e: &Executable) -> bool {
    matches!(e.routes()[0].route, NativeRoute::Shim { .. })
}

const F: DType = DType::F32;

/// `bias + 2 (x @ w) @ wᵀ`, rows of x symbolic.
fn mlp() -> P {
    let mut b = P::new("mlp");
    let n = b.symbol("n", 2);
    let (x, w) = (b.input("x", &[n.clone(), c(2)]), b.input("w", &[c(2), c(2)]));
    let bias = b.input("b", &[c(2)]);
    let h = b.f32("h", &[n.clone(), c(2)], BufferKind::Native);
    let g = b.f32("g", &[n.clone(), c(2)], BufferKind::Intermediate);
    let y = b.f32("y", &[n, c(2)], BufferKind::Output);
    let args = vec![b.t(x), b.t(w)];
    b.native("aten.mm.default", args, &[Some(h)]);
    b.pointwise(PrimOp::Mul, g, h, Err(2.0));
    let turned = TensorRef { strides: vec![c(1), c(2)], ..b.whole(w) };
    let args = vec![b.t(bias), b.t(g), NativeArg::Tensor(turned)];
    b.native("aten.addmm.default", args, &[Some(y)]);
    b.returns(y);
    b
}

#[test]
fn products_write_into_the_arena_and_into_outputs() {
    let Some((p, _lock)) = provider() else { return };
    let e = Executable::new(Arc::new(mlp().0), p.clone(), Arc::new(Points)).unwrap();
    assert!(e.routes().iter().all(|r| matches!(r.route, NativeRoute::Shim { .. })), "{:?}", e.routes());
    assert_eq!((e.arena_bytes(), e.in_place()), (64, 1));
    for n in [2i64, 1, 3, 0] {
        let x: Vec<f32> = (0..n * 2).map(|i| i as f32).collect();
        let w = [1.0f32, 2.0, 3.0, 4.0];
        let bias = [100.0f32, 200.0];
        let out = e.run(vec![make(&p, F, &[n, 2], &x), make(&p, F, &[2, 2], &w), make(&p, F, &[2], &bias)]).unwrap();
        let expected: Vec<f32> = x
            .chunks(2)
            .flat_map(|r| {
                let h = [2.0 * (r[0] + 3.0 * r[1]), 2.0 * (2.0 * r[0] + 4.0 * r[1])];
                [100.0 + h[0] + 2.0 * h[1], 200.0 + 3.0 * h[0] + 4.0 * h[1]]
            })
            .collect();
        assert_eq!(read::<f32>(&out[0]), expected);
    }
}

#[test]
fn offsets_of_views_add_up() {
    let Some((p, _lock)) = provider() else { return };
    let RunInput::Tensor(t) = make(&p, DType::F32, &[6], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]) else { panic!() };
    let inner = t.view(&[5], &[1], 1).unwrap().view(&[2], &[2], 2).unwrap();
    assert_eq!((inner.shape(), inner.strides()), (&[2][..], &[2][..]));
    // SAFETY: the third element after the first view's start, in memory of six.
    assert_eq!(unsafe { *inner.data_ptr().cast::<f32>() }, 3.0);
}

#[test]
fn lists_of_tensors_and_optional_tensors() {
    let Some((p, _lock)) = provider() else { return };
    let x = || make(&p, F, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    for (op, shape) in [("aten.cat.default", vec![4, 2]), ("aten.stack.default", vec![2, 2, 2])] {
        let args = |i: &[NativeArg]| vec![NativeArg::List(i.to_vec())];
        let e = one_op(&p, op, &[(F, &[2, 2]), (F, &[2, 2])], args, vec![], &[Some((F, &shape))]).unwrap();
        assert_eq!(shim(&e), op == "aten.cat.default");
        let out = e.run(vec![x(), x()]).unwrap();
        assert_eq!(read::<f32>(&out[0]), [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    }
    for op in ["aten.index.Tensor", "aten._unsafe_index.Tensor"] {
        let args = |i: &[NativeArg]| vec![i[0].clone(), NativeArg::List(vec![NativeArg::None, i[1].clone()])];
        let e = one_op(&p, op, &[(F, &[2, 2]), (DType::I64, &[3])], args, vec![], &[Some((F, &[2, 3]))]).unwrap();
        assert_eq!(shim(&e), op == "aten.index.Tensor");
        let out = e.run(vec![x(), make(&p, DType::I64, &[3], &[1i64, 0, 1])]).unwrap();
        assert_eq!(read::<f32>(&out[0]), [2.0, 1.0, 2.0, 4.0, 3.0, 4.0]);
    }
    let outs: [Option<(DType, &[i64])>; 2] = [Some((F, &[2])), Some((F, &[2]))];
    let e = one_op(&p, "aten.unbind.int", &[(F, &[2, 2])], |i| i.to_vec(), vec![], &outs).unwrap();
    let out = e.run(vec![x()]).unwrap();
    assert_eq!((read::<f32>(&out[0]), read::<f32>(&out[1])), (vec![1.0, 2.0], vec![3.0, 4.0]));
}

#[test]
fn masks_dims_dtypes_and_strings() {
    let Some((p, _lock)) = provider() else { return };
    let x = || make(&p, F, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    let args = |i: &[NativeArg]| i.to_vec();
    let ins: [(DType, &[i64]); 3] = [(DType::Bool, &[2, 2]), (F, &[2, 2]), (F, &[2, 2])];
    let e = one_op(&p, "aten.where.self", &ins, args, vec![], &[Some((F, &[2, 2]))]).unwrap();
    let mask = make(&p, DType::Bool, &[2, 2], &[true, false, false, true]);
    let zero = make(&p, F, &[2, 2], &[0.0f32; 4]);
    assert_eq!(read::<f32>(&e.run(vec![mask, x(), zero]).unwrap()[0]), [1.0, 0.0, 0.0, 4.0]);

    let args = |i: &[NativeArg]| vec![i[0].clone(), ints(&[0]), NativeArg::Bool(true)];
    let kwargs = vec![("dtype", NativeArg::DType(DType::F64))];
    let e = one_op(&p, "aten.sum.dim_IntList", &[(F, &[2, 2])], args, kwargs, &[Some((DType::F64, &[1, 2]))]).unwrap();
    assert!(matches!(&e.routes()[0].route, NativeRoute::Dispatcher { .. }));
    assert_eq!(read::<f64>(&e.run(vec![x()]).unwrap()[0]), [4.0, 6.0]);

    let args = |i: &[NativeArg]| i.to_vec();
    let kwargs = vec![("rounding_mode", NativeArg::Str("floor".into()))];
    let e = one_op(&p, "aten.div.Tensor_mode", &[(F, &[2, 2]), (F, &[])], args, kwargs, &[Some((F, &[2, 2]))]).unwrap();
    assert_eq!(read::<f32>(&e.run(vec![x(), make(&p, F, &[], &[2.0f32])]).unwrap()[0]), [0.0, 1.0, 1.0, 2.0]);

    let kwargs = vec![
        ("dtype", NativeArg::DType(DType::I64)),
        ("device", NativeArg::Device(permalloy_ir::Device::Cpu)),
        ("layout", NativeArg::Layout("torch.strided".into())),
        ("memory_format", NativeArg::MemoryFormat("torch.contiguous_format".into())),
    ];
    let e =
        one_op(&p, "aten._to_copy.default", &[(F, &[2, 2])], |i| i.to_vec(), kwargs, &[Some((DType::I64, &[2, 2]))]);
    assert_eq!(read::<i64>(&e.unwrap().run(vec![x()]).unwrap()[0]), [1, 2, 3, 4]);
}

#[test]
fn several_results_of_which_some_are_absent() {
    let Some((p, _lock)) = provider() else { return };
    let args = |i: &[NativeArg]| vec![i[0].clone(), ints(&[2]), i[1].clone(), NativeArg::None, NativeArg::Float(0.0)];
    let outs: [Option<(DType, &[i64])>; 3] = [Some((F, &[2, 2])), None, Some((F, &[2, 1]))];
    let e = one_op(&p, "aten.native_layer_norm.default", &[(F, &[2, 2]), (F, &[2])], args, vec![], &outs).unwrap();
    let x = make(&p, F, &[2, 2], &[1.0f32, 3.0, 2.0, 6.0]);
    let out = e.run(vec![x, make(&p, F, &[2], &[1.0f32, 10.0])]).unwrap();
    assert_eq!((read::<f32>(&out[0]), read::<f32>(&out[1])), (vec![-1.0, 10.0, -1.0, 10.0], vec![1.0, 0.5]));

    let conv = |i: &[NativeArg]| {
        let (one, zero) = (ints(&[1, 1]), ints(&[0, 0]));
        vec![one.clone(), zero.clone(), one, NativeArg::Bool(false), zero, NativeArg::Int(c(1)), i[0].clone()]
    };
    let args = |i: &[NativeArg]| {
        let mut a = vec![i[0].clone(), i[1].clone(), NativeArg::None];
        a.extend(conv(i).into_iter().take(6));
        a
    };
    let ins: [(DType, &[i64]); 2] = [(F, &[1, 1, 2, 2]), (F, &[1, 1, 2, 2])];
    let e = one_op(&p, "aten.convolution.default", &ins, args, vec![], &[Some((F, &[1, 1, 1, 1]))]).unwrap();
    assert!(shim(&e));
    let x = || make(&p, F, &[1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    assert_eq!(read::<f32>(&e.run(vec![x(), x()]).unwrap()[0]), [30.0]);

    let args = |i: &[NativeArg]| {
        let mut a = vec![i[0].clone(), i[1].clone(), i[2].clone(), ints(&[0])];
        a.extend(conv(i).into_iter().take(6));
        a.push(NativeArg::List([false, true, false].map(NativeArg::Bool).to_vec()));
        a
    };
    let ins: [(DType, &[i64]); 3] = [(F, &[1, 1, 1, 1]), (F, &[1, 1, 2, 2]), (F, &[1, 1, 2, 2])];
    let outs: [Option<(DType, &[i64])>; 3] = [None, Some((F, &[1, 1, 2, 2])), None];
    let e = one_op(&p, "aten.convolution_backward.default", &ins, args, vec![], &outs).unwrap();
    assert!(shim(&e));
    let out = e.run(vec![make(&p, F, &[1, 1, 1, 1], &[2.0f32]), x(), x()]).unwrap();
    assert_eq!(read::<f32>(&out[0]), [2.0, 4.0, 6.0, 8.0]);

    let args = |i: &[NativeArg]| vec![i[0].clone(), ints(&[2, 2])];
    let outs: [Option<(DType, &[i64])>; 2] = [Some((F, &[1, 1, 1, 1])), Some((DType::I64, &[1, 1, 1, 1]))];
    let e = one_op(&p, "aten.max_pool2d_with_indices.default", &[(F, &[1, 1, 2, 2])], args, vec![], &outs).unwrap();
    let out = e.run(vec![x()]).unwrap();
    assert!(shim(&e));
    assert_eq!((read::<f32>(&out[0]), read::<i64>(&out[1])), (vec![4.0], vec![3]));
}

#[test]
fn attention_and_dropout_go_through_shims() {
    let Some((p, _lock)) = provider() else { return };
    let shape: &[i64] = &[1, 1, 2, 2];
    let kwargs = vec![("scale", NativeArg::Float(0.0))];
    let outs: [Option<(DType, &[i64])>; 2] = [Some((F, shape)), Some((F, &[1, 1, 2]))];
    let op = "aten._scaled_dot_product_flash_attention_for_cpu.default";
    let args = |i: &[NativeArg]| i.to_vec();
    let e = one_op(&p, op, &[(F, shape), (F, shape), (F, shape)], args, kwargs, &outs).unwrap();
    assert!(shim(&e));
    let x = || make(&p, F, shape, &[1.0f32, 2.0, 3.0, 4.0]);
    let out = e.run(vec![x(), x(), x()]).unwrap();
    assert_eq!(read::<f32>(&out[0]), [2.0, 3.0, 2.0, 3.0]);
    assert!(read::<f32>(&out[1]).iter().all(|l| (l - 2f32.ln()).abs() < 1e-6));

    let args = |i: &[NativeArg]| vec![i[0].clone(), NativeArg::Float(0.5), NativeArg::Bool(true)];
    let outs: [Option<(DType, &[i64])>; 2] = [Some((F, &[64])), Some((DType::Bool, &[64]))];
    let e = one_op(&p, "aten.native_dropout.default", &[(F, &[64])], args, vec![], &outs).unwrap();
    let out = e.run(vec![make(&p, F, &[64], &[1.0f32; 64])]).unwrap();
    let (y, mask) = (read::<f32>(&out[0]), read::<u8>(&out[1]));
    assert!(y.iter().zip(&mask).all(|(y, m)| *y == 2.0 * f32::from(*m)) && mask.contains(&0) && mask.contains(&1));
}

#[test]
fn scalars_keep_dtypes() {
    let Some((p, _lock)) = provider() else { return };
    let args = |s: NativeArg| move |i: &[NativeArg]| vec![i[0].clone(), s];
    let e =
        one_op(&p, "aten.mul.Scalar", &[(F, &[2])], args(NativeArg::Int(c(3))), vec![], &[Some((F, &[2]))]).unwrap();
    assert!(shim(&e));
    assert_eq!(read::<f32>(&e.run(vec![make(&p, F, &[2], &[1.0f32, 2.0])]).unwrap()[0]), [3.0, 6.0]);
    let i64s: &[(DType, &[i64])] = &[(DType::I64, &[2])];
    let e =
        one_op(&p, "aten.mul.Scalar", i64s, args(NativeArg::Int(c(3))), vec![], &[Some((DType::I64, &[2]))]).unwrap();
    assert!(
        matches!(&e.routes()[0].route, NativeRoute::Python { reason } if reason.contains("Scalar")),
        "{:?}",
        e.routes()
    );
    let error = e.run(vec![make(&p, DType::I64, &[2], &[1i64, 2])]).unwrap_err();
    assert_eq!(error.to_string(), "aten.mul.Scalar at model.py:7: python says no to aten.mul.Scalar");
}

#[test]
fn an_error_of_torchs_names_the_operator_and_its_line() {
    let Some((p, _lock)) = provider() else { return };
    let args = |i: &[NativeArg]| i.to_vec();
    // The dispatcher finds the mistake, and the message comes from Python.
    let e = one_op(
        &p,
        "aten.stack.default",
        &[(F, &[2]), (F, &[3])],
        |i| vec![NativeArg::List(i.to_vec())],
        vec![],
        &[Some((F, &[2, 2]))],
    )
    .unwrap();
    let run =
        |e: &Executable| e.run(vec![make(&p, F, &[2], &[0.0f32; 2]), make(&p, F, &[3], &[0.0f32; 3])]).unwrap_err();
    assert_eq!(run(&e).to_string(), "aten.stack.default at model.py:7: python says no to aten.stack.default");
    assert!(matches!(run(&e), RunError::Native { .. }));
    // Found before anything runs.
    let e = one_op(&p, "aten.mm.default", &[(F, &[2, 3]), (F, &[3, 2])], args, vec![], &[Some((F, &[9, 9]))]);
    assert!(matches!(e.unwrap().routes()[0].route, NativeRoute::Python { .. }));
    // The result is not what the program says.
    let e = one_op(
        &p,
        "aten.stack.default",
        &[(F, &[2]), (F, &[2])],
        |i| vec![NativeArg::List(i.to_vec())],
        vec![],
        &[Some((F, &[4]))],
    )
    .unwrap();
    let two = || make(&p, F, &[2], &[0.0f32; 2]);
    assert!(e.run(vec![two(), two()]).unwrap_err().to_string().contains("the graph says"));
}

#[test]
fn results_that_alias_operands_are_copied_and_layouts_are_as_promised() {
    let Some((p, _lock)) = provider() else { return };
    let e = one_op(&p, "aten.t.default", &[(F, &[2, 2])], |i| i.to_vec(), vec![], &[Some((F, &[2, 2]))]).unwrap();
    let x = make(&p, F, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    let out = e.run(vec![x]).unwrap();
    assert_eq!((tensor(&out[0]).strides(), read::<f32>(&out[0])), (&[2i64, 1][..], vec![1.0, 3.0, 2.0, 4.0]));
}

/// As `_batch_norm_with_update` in bf16, whose statistics PyTorch's shape function promises in f32.
#[test]
fn a_result_of_another_dtype_is_brought_into_the_promised_one() {
    let Some((p, _lock)) = provider() else { return };
    let e = one_op(&p, "aten.t.default", &[(F, &[2, 2])], |i| i.to_vec(), vec![], &[Some((DType::F64, &[2, 2]))]);
    let out = e.unwrap().run(vec![make(&p, F, &[2, 2], &[1.0f32, 2.0, 3.0, 4.5])]).unwrap();
    assert_eq!(read::<f64>(&out[0]), [1.0, 3.0, 2.0, 4.5]);
}

#[test]
fn a_mutating_operator_reaches_the_callers_tensor() {
    let Some((p, _lock)) = provider() else { return };
    let e = one_op(&p, "aten.relu_.default", &[(F, &[2, 2])], |i| i.to_vec(), vec![], &[None]).unwrap();
    let RunInput::Tensor(x) = make(&p, F, &[2, 2], &[-1.0f32, 2.0, -3.0, 4.0]) else { panic!() };
    let again = RunOutput::Tensor(x.share().unwrap());
    let turned = x.view(&[2, 2], &[1, 2], 0).unwrap();
    e.run(vec![RunInput::Tensor(turned)]).unwrap();
    assert_eq!(read::<f32>(&again), [0.0, 2.0, 0.0, 4.0]);
}

#[test]
fn parallel_loops_run_every_task_and_carry_panics() {
    let Some((p, _lock)) = provider() else { return };
    let parallel = p.parallel();
    assert!(parallel.threads() >= 1);
    for tasks in [0, 1, 2, 7, 1000] {
        let done: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        parallel.run(tasks, &|i| {
            done[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
    }
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        parallel.run(100, &|i| assert_ne!(i, 70));
    }));
    assert!(panic.is_err());
    let done = AtomicUsize::new(0);
    parallel.run(10, &|_| {
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.into_inner(), 10);
}

#[test]
fn pooled_outputs_get_the_same_memory_again_once_they_are_dead() {
    let Some((p, _lock)) = provider() else { return };
    let n = 100_000;
    let mut b = P::new("pooled");
    let x = b.input("x", &[c(n)]);
    let y = b.f32("y", &[c(n)], BufferKind::Output);
    b.pointwise(PrimOp::Add, y, x, Err(1.0));
    b.returns(y);
    let e = Executable::new(Arc::new(b.0), p.clone(), Arc::new(Points)).unwrap();
    let run = || e.run(vec![make(&p, F, &[n], &vec![1.0f32; n as usize])]).unwrap();
    let first = run();
    let second = run();
    let address = |o: &[RunOutput]| tensor(&o[0]).data_ptr();
    assert_ne!(address(&first), address(&second));
    let freed = address(&first);
    let view = tensor(&first[0]).view(&[2], &[1], 5).unwrap();
    drop(first);
    let third = run();
    assert_ne!(address(&third), freed, "a view keeps the memory");
    drop(view);
    let fourth = run();
    assert_eq!(address(&fourth), freed);
    assert!(read::<f32>(&fourth[0]).iter().all(|v| *v == 2.0));
}

#[test]
fn autograd_stays_out_and_its_mode_comes_back() {
    let Some((p, _lock)) = provider() else { return };
    let symbol = p.api().symbol("torch_set_requires_grad\0").expect("PyTorch 2.10");
    type SetRequiresGrad = unsafe extern "C" fn(*mut std::ffi::c_void, bool) -> i32;
    // SAFETY: the C function's signature.
    let set = unsafe { std::mem::transmute::<*mut std::ffi::c_void, SetRequiresGrad>(symbol) };
    let leaf = |shape: &[i64]| {
        let t = make(&p, F, shape, &vec![1.0f32; shape.iter().product::<i64>() as usize]);
        if let RunInput::Tensor(TensorHandle::Torch(t)) = &t {
            // SAFETY: a live handle.
            assert_eq!(unsafe { set(t.raw(), true) }, 0);
        }
        t
    };
    // SAFETY: reads a flag of this thread.
    let enabled = || unsafe { (p.api().grad_mode_is_enabled)() };
    assert!(enabled());
    let e = Executable::new(Arc::new(mlp().0), p.clone(), Arc::new(TileEngine::new())).unwrap();
    // With autograd on, `out=` variants refuse operands that require gradients.
    let out = e.run(vec![leaf(&[2, 2]), leaf(&[2, 2]), leaf(&[2])]).unwrap();
    assert_eq!(read::<f32>(&out[0]), [9.0; 4]);
    let relu = one_op(&p, "aten.relu_.default", &[(F, &[2])], |i| i.to_vec(), vec![], &[None]).unwrap();
    relu.run(vec![leaf(&[2])]).unwrap();
    assert!(enabled());
}

#[test]
fn several_threads_run_the_same_executable() {
    let Some((p, _lock)) = provider() else { return };
    let e = Executable::new(Arc::new(mlp().0), p.clone(), Arc::new(TileEngine::new())).unwrap();
    std::thread::scope(|s| {
        for t in 0..4 {
            let (e, p) = (&e, &p);
            s.spawn(move || {
                for i in 0..200i64 {
                    let n = 1 + (i + t) % 5;
                    let x = make(p, F, &[n, 2], &vec![t as f32; n as usize * 2]);
                    let ones = |shape: &[i64]| make(p, F, shape, &vec![1.0f32; shape.iter().product::<i64>() as usize]);
                    let out = e.run(vec![x, ones(&[2, 2]), ones(&[2])]).unwrap();
                    assert_eq!(read::<f32>(&out[0]), vec![1.0 + 8.0 * t as f32; n as usize * 2]);
                }
            });
        }
    });
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).and_then(|p| p.parse::<usize>().ok()).unwrap() * 4096
}

#[test]
fn ten_thousand_calls_leak_nothing() {
    let Some((p, _lock)) = provider() else { return };
    let n = 512;
    let ins: [(DType, &[i64]); 2] = [(F, &[n]), (DType::I64, &[3])];
    let args = |i: &[NativeArg]| vec![i[0].clone(), NativeArg::List(vec![i[1].clone()])];
    let index = one_op(&p, "aten._unsafe_index.Tensor", &ins, args, vec![], &[Some((F, &[3]))]).unwrap();
    let outs: [Option<(DType, &[i64])>; 2] = [Some((F, &[n])), Some((DType::Bool, &[n]))];
    let args = |i: &[NativeArg]| vec![i[0].clone(), NativeArg::Float(0.5), NativeArg::Bool(true)];
    let dropout = one_op(&p, "aten.native_dropout.default", &[(F, &[n])], args, vec![], &outs).unwrap();
    let args = |i: &[NativeArg]| vec![NativeArg::List(i.to_vec())];
    let stack = one_op(&p, "aten.stack.default", &[(F, &[n]), (F, &[n])], args, vec![], &[Some((F, &[2, n]))]).unwrap();
    let failing =
        one_op(&p, "aten.stack.default", &[(F, &[2]), (F, &[3])], args, vec![], &[Some((F, &[2, 2]))]).unwrap();
    let x = || make(&p, F, &[n], &vec![1.0f32; n as usize]);
    let round = || {
        index.run(vec![x(), make(&p, DType::I64, &[3], &[0i64, 1, 2])]).unwrap();
        dropout.run(vec![x()]).unwrap();
        stack.run(vec![x(), x()]).unwrap();
    };
    let fail = || failing.run(vec![make(&p, F, &[2], &[0.0f32; 2]), make(&p, F, &[3], &[0.0f32; 3])]).unwrap_err();
    (0..500).for_each(|_| round());
    fail();
    let (handles, before) = (TorchTensor::live_handles(), resident_bytes());
    (0..10_000).for_each(|_| round());
    fail();
    assert_eq!(TorchTensor::live_handles(), handles);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes more after 10,000 rounds");
}
