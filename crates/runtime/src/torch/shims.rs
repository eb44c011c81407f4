//! Calls through the C function that libtorch exports for one operator: no look-up by name, no dispatcher, no autograd.
//!
//! Signatures are strings, a letter a parameter (a list is a pointer and a length, a device a pointer and an index):
//!
//! | letter | C | schema |
//! |---|---|---|
//! | `T` `t` `H` `h` | `AtenTensorHandle`, `AtenTensorHandle*`, `const AtenTensorHandle*`, `const AtenTensorHandle**` | `Tensor`, `Tensor?`, `Tensor[]`, `Tensor?[]` |
//! | `i` `j` `L` `l` | `int64_t`, `int64_t*`, `const int64_t*`, `const int64_t**` | `int`, `int?`, `int[]`, `int[]?` |
//! | `d` `e` `D` `q` | `double`, `double*`, `const double*`, `const double**` | `float` or `Scalar`, optional, `float[]`, `float[]?` |
//! | `b` `c` `B` | `int32_t`, `int32_t*`, `const int32_t*` | `bool`, `ScalarType`, `Layout`, `MemoryFormat`; optional; `bool[]` |
//! | `V` | `int32_t*`, `int32_t` | `Device?` |
//! | `s` `S` | `const char*`, `const char**` | `str`, `str?` |
//! | `G` | `AtenGeneratorHandle*` | `Generator?` |
//! | `O` `R` `r` | `AtenTensorHandle` first of all, `AtenTensorHandle*`, `int64_t*` | output given, tensor result, `int` result |
//!
//! One Rust function makes all these calls: under the System V and AAPCS64 conventions integers and pointers fill one set
//! of registers and then the stack, doubles another, so that up to eight doubles may stand anywhere among the arguments,
//! and a callee does not see arguments beyond its own.

use super::api::{Api, RawTensor};
use super::schema::{Schema, SchemaType};
use super::shim_table::SHIMS;
use super::tensor::TorchTensor;
use crate::provider::{ResolvedArg, ResolvedCall};
use crate::tensor::TensorHandle;
use permalloy_ir::Device;
use std::ffi::{CString, c_void};

const MAX_WORDS: usize = 32;
const MAX_DOUBLES: usize = 8;
const FEW_WORDS: usize = 12;
const FEW_DOUBLES: usize = 2;

/// An operator's C function with its constant arguments laid out.
pub struct Shim {
    pub symbol: String,
    /// The first argument is memory for the result.
    pub writes_into: bool,
    function: *mut c_void,
    words: Vec<Word>,
    doubles: [f64; MAX_DOUBLES],
    /// `Tensor?[]` operands: for each item its tensor, if any.
    optional_items: Vec<Option<usize>>,
    /// Whether each result is a tensor; an integer is none of the graph's values.
    results: Vec<bool>,
    /// What words point to; never touched again.
    _constants: Vec<Constant>,
}

/// What words may point to; the heap blocks stay where they are when the enum moves.
#[expect(dead_code, reason = "kept for the pointers into them")]
enum Constant {
    Ints(Box<[i64]>),
    Halves(Box<[i32]>),
    Doubles(Box<[f64]>),
    Text(CString),
    Pointer(Box<u64>),
}

/// An integer or pointer argument.
#[derive(Clone, Copy, Debug)]
enum Word {
    Constant(u64),
    Tensor(usize),
    /// Address of the handle: an optional tensor, or the first of a list.
    TensorAddress(usize),
    /// Address of the item-th pointer of `optional_items`.
    ItemAddress(usize),
    Out,
    Result(usize),
}

// SAFETY: the pointers lead to code, and to constants that the shim owns and nobody changes.
unsafe impl Send for Shim {}
// SAFETY: as above.
unsafe impl Sync for Shim {}

/// Whether the operator's C function takes the memory of its result.
pub(crate) fn writes_into(op: &str) -> bool {
    let row = SHIMS.binary_search_by(|(name, _, _)| (*name).cmp(op));
    row.is_ok_and(|r| SHIMS[r].2.starts_with('O'))
}

impl Shim {
    /// The operator's shim with its arguments, or the reason why there is none.
    pub fn prepare(api: &'static Api, on: Device, schema: &Schema, call: &ResolvedCall) -> Result<Shim, String> {
        if !cfg!(all(unix, any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "linux")))) {
            return Err("no generic C calls on this platform".into());
        }
        let row = SHIMS.binary_search_by(|(op, _, _)| (*op).cmp(&call.op)).map_err(|_| "no C function of its own")?;
        let (_, symbol, code) = SHIMS[row];
        let wanted = signature(schema).ok_or("its schema has a type C functions do not take")?;
        let (args, results) = wanted.split_at(wanted.len() - schema.returns.len());
        let writes_into = code.starts_with('O');
        let fits = match writes_into {
            true => &code[1..] == args && results == "R" && matches!(call.results.as_slice(), [Some(_)]),
            false => {
                code == wanted || (schema.returns_arguments && code == args && call.results.iter().all(Option::is_none))
            }
        };
        if !fits {
            return Err(format!("{symbol} has another signature than the schema ({code}, {wanted})"));
        }
        if call.devices.iter().any(|d| *d != on) {
            return Err("an operand is on another device, which C functions do not expect".into());
        }
        let symbol = match on {
            Device::Cuda(_) => symbol.replacen("_cpu_", "_cuda_", 1),
            _ if symbol.starts_with("aoti_torch_cpu_") => symbol.to_string(),
            _ => return Err(format!("{symbol} is for CUDA devices")),
        };
        let function = api.symbol(&format!("{symbol}\0")).or_else(|| api.cuda_symbol(&format!("{symbol}\0")));
        let function = function.ok_or_else(|| format!("this PyTorch lacks {symbol}"))?;
        let mut layout = Layout { undefined: api.undefined()? as u64, ..Layout::default() };
        if writes_into {
            layout.words.push(Word::Out);
        }
        for (kind, value) in args.chars().zip(schema.bind(call)?) {
            layout.argument(kind, &value, call)?;
        }
        let results: Vec<bool> = match writes_into {
            true => vec![],
            false => code[args.len()..].chars().map(|c| c == 'R').collect(),
        };
        layout.words.extend((0..results.len()).map(Word::Result));
        if layout.words.len() > MAX_WORDS || layout.doubles.len() > MAX_DOUBLES {
            return Err("too many arguments for a generic C call".into());
        }
        let mut doubles = [0.0; MAX_DOUBLES];
        doubles[..layout.doubles.len()].copy_from_slice(&layout.doubles);
        if layout.doubles.len() > FEW_DOUBLES {
            // Takes the long form of the call.
            layout.words.resize(layout.words.len().max(FEW_WORDS + 1), Word::Constant(0));
        }
        Ok(Shim {
            symbol,
            writes_into,
            function,
            words: layout.words,
            doubles,
            optional_items: layout.optional_items,
            results,
            _constants: layout.constants,
        })
    }

    /// Calls; false on an error of torch's.
    pub fn call(
        &self,
        api: &'static Api,
        tensors: &[&TensorHandle],
        out: Option<&TensorHandle>,
        results: &mut Vec<Option<TensorHandle>>,
    ) -> Result<bool, String> {
        let mut handles = Handles::of(tensors)?;
        let handles = handles.as_mut();
        let items: Vec<*const RawTensor> =
            (self.optional_items.iter()).map(|i| i.map_or(std::ptr::null(), |i| &raw const handles[i])).collect();
        let out = match out {
            Some(TensorHandle::Torch(t)) => t.raw(),
            _ => std::ptr::null_mut(),
        };
        let mut returned = [0u64; MAX_WORDS];
        let mut words = [0u64; MAX_WORDS];
        for (slot, word) in words.iter_mut().zip(&self.words) {
            *slot = match *word {
                Word::Constant(c) => c,
                Word::Tensor(i) => handles[i] as u64,
                Word::TensorAddress(i) => &raw const handles[i] as u64,
                Word::ItemAddress(i) => &raw const items[i] as u64,
                Word::Out => out as u64,
                Word::Result(i) => &raw mut returned[i] as u64,
            };
        }
        // SAFETY: the signature was compared with the operator's schema; the words follow it, and everything they
        // point to lives until the call returns.
        let code = unsafe {
            if self.words.len() <= FEW_WORDS {
                call_few(self.function, &words, &self.doubles)
            } else {
                call_many(self.function, &words, &self.doubles)
            }
        };
        if code != 0 {
            return Ok(false);
        }
        for (r, is_tensor) in returned.iter().zip(&self.results) {
            if !is_tensor {
                results.push(None);
                continue;
            }
            // SAFETY: the operator succeeded, so that each tensor result is an owning handle or null.
            let tensor = unsafe { TorchTensor::from_raw(api, *r as RawTensor) };
            results.push(tensor.filter(TorchTensor::is_defined).map(TensorHandle::Torch));
        }
        Ok(true)
    }
}

/// Raw handles of the operands, on the stack when they are few.
pub(super) enum Handles {
    Few([RawTensor; 12], usize),
    Many(Vec<RawTensor>),
}

impl Handles {
    pub(super) fn of(tensors: &[&TensorHandle]) -> Result<Handles, String> {
        let raw = |t: &&TensorHandle| match t {
            TensorHandle::Torch(t) => Ok(t.raw()),
            TensorHandle::Plain(_) => Err("an operand is no tensor of PyTorch's".to_string()),
        };
        if tensors.len() > 12 {
            return Ok(Handles::Many(tensors.iter().map(raw).collect::<Result<_, _>>()?));
        }
        let mut few = [std::ptr::null_mut(); 12];
        for (slot, t) in few.iter_mut().zip(tensors) {
            *slot = raw(t)?;
        }
        Ok(Handles::Few(few, tensors.len()))
    }

    pub(super) fn as_mut(&mut self) -> &mut [RawTensor] {
        match self {
            Handles::Few(few, n) => &mut few[..*n],
            Handles::Many(many) => many,
        }
    }
}

/// The signature that a schema asks for, results last; None when it has a type that no shim takes.
fn signature(schema: &Schema) -> Option<String> {
    let arg = |ty: &SchemaType| {
        use SchemaType::*;
        Some(match ty {
            Tensor => 'T',
            Int => 'i',
            Float | Scalar => 'd',
            Bool | ScalarType | Layout | MemoryFormat => 'b',
            Str => 's',
            List(inner, _) => match &**inner {
                Tensor => 'H',
                Optional(t) if **t == Tensor => 'h',
                Int => 'L',
                Float => 'D',
                Bool => 'B',
                _ => return None,
            },
            Optional(inner) => match &**inner {
                Tensor => 't',
                Int => 'j',
                Float | Scalar => 'e',
                Bool | ScalarType | Layout | MemoryFormat => 'c',
                Str => 'S',
                Device => 'V',
                Generator => 'G',
                List(item, _) if **item == Int => 'l',
                List(item, _) if **item == Float => 'q',
                _ => return None,
            },
            _ => return None,
        })
    };
    let mut code = schema.args.iter().map(|a| arg(&a.ty)).collect::<Option<String>>()?;
    for r in &schema.returns {
        code.push(match r {
            SchemaType::Tensor => 'R',
            SchemaType::Int => 'r',
            _ => return None,
        });
    }
    Some(code)
}

/// Arguments on their way into registers.
#[derive(Default)]
struct Layout {
    /// Handle of a tensor that is none.
    undefined: u64,
    words: Vec<Word>,
    doubles: Vec<f64>,
    optional_items: Vec<Option<usize>>,
    constants: Vec<Constant>,
}

impl Layout {
    fn argument(&mut self, kind: char, value: &ResolvedArg, call: &ResolvedCall) -> Result<(), String> {
        let wrong = || format!("an argument does not fit the schema: {value:?}");
        match (kind, value) {
            ('t' | 'j' | 'e' | 'c' | 'S' | 'G', ResolvedArg::None) => self.word(0),
            ('l' | 'q' | 'V', ResolvedArg::None) => {
                self.word(0);
                self.word(0);
            }
            ('T', ResolvedArg::Tensor(i)) => self.words.push(Word::Tensor(*i)),
            ('T', ResolvedArg::None) => self.word(self.undefined),
            ('t', ResolvedArg::Tensor(i)) => self.words.push(Word::TensorAddress(*i)),
            ('H', ResolvedArg::List(items)) => {
                let tensors: Option<Vec<usize>> = items.iter().map(tensor).collect();
                let tensors = tensors.filter(|t| t.windows(2).all(|w| w[1] == w[0] + 1)).ok_or_else(wrong)?;
                self.words.push(tensors.first().map_or(Word::Constant(0), |i| Word::TensorAddress(*i)));
                self.word(items.len() as u64);
            }
            ('h', ResolvedArg::List(items)) => {
                let first = self.optional_items.len();
                for item in items {
                    self.optional_items.push(match item {
                        ResolvedArg::None => None,
                        other => Some(tensor(other).ok_or_else(wrong)?),
                    });
                }
                self.words.push(if items.is_empty() { Word::Constant(0) } else { Word::ItemAddress(first) });
                self.word(items.len() as u64);
            }
            ('i' | 'j', ResolvedArg::Int(i)) => self.value_or_address(kind == 'j', *i as u64),
            ('L' | 'l', ResolvedArg::List(items)) => {
                let ints: Option<Box<[i64]>> = items.iter().map(int).collect();
                let ints = ints.ok_or_else(wrong)?;
                self.list(kind == 'l', ints.as_ptr() as u64, ints.len());
                self.constants.push(Constant::Ints(ints));
            }
            ('D' | 'q', ResolvedArg::List(items)) => {
                let doubles: Option<Box<[f64]>> = items.iter().map(double).collect();
                let doubles = doubles.ok_or_else(wrong)?;
                self.list(kind == 'q', doubles.as_ptr() as u64, doubles.len());
                self.constants.push(Constant::Doubles(doubles));
            }
            ('B', ResolvedArg::List(items)) => {
                let halves: Option<Box<[i32]>> = items.iter().map(half).collect();
                let halves = halves.ok_or_else(wrong)?;
                self.list(false, halves.as_ptr() as u64, halves.len());
                self.constants.push(Constant::Halves(halves));
            }
            ('d' | 'e', ResolvedArg::Float(_) | ResolvedArg::Int(_) | ResolvedArg::Bool(_)) => {
                let x = double(value).ok_or_else(wrong)?;
                let exact = matches!(value, ResolvedArg::Float(_));
                if !exact && !call.tensors.first().is_some_and(|t| t.dtype.is_float()) {
                    return Err("C functions take scalars as doubles, which would change the result's dtype".into());
                }
                if kind == 'd' {
                    self.doubles.push(x);
                } else {
                    self.value_or_address(true, x.to_bits());
                }
            }
            ('b' | 'c', v) => {
                let h = half(v).ok_or_else(wrong)?;
                if kind == 'b' {
                    self.word(h as u32 as u64);
                } else {
                    self.halves(Box::new([h]));
                }
            }
            ('V', ResolvedArg::Device(d)) => {
                let (ty, index) = device(*d).ok_or_else(wrong)?;
                self.halves(Box::new([ty]));
                self.word(index as u32 as u64);
            }
            ('s' | 'S', ResolvedArg::Str(text)) => {
                let text = CString::new(&**text).map_err(|_| wrong())?;
                self.value_or_address(kind == 'S', text.as_ptr() as u64);
                self.constants.push(Constant::Text(text));
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn word(&mut self, w: u64) {
        self.words.push(Word::Constant(w));
    }

    fn value_or_address(&mut self, address: bool, value: u64) {
        if address {
            let boxed = Box::new(value);
            self.word(&raw const *boxed as u64);
            self.constants.push(Constant::Pointer(boxed));
        } else {
            self.word(value);
        }
    }

    fn list(&mut self, address: bool, data: u64, len: usize) {
        self.value_or_address(address, data);
        self.word(len as u64);
    }

    fn halves(&mut self, halves: Box<[i32]>) {
        self.word(halves.as_ptr() as u64);
        self.constants.push(Constant::Halves(halves));
    }
}

fn tensor(v: &ResolvedArg) -> Option<usize> {
    match v {
        ResolvedArg::Tensor(i) => Some(*i),
        _ => None,
    }
}

pub(super) fn int(v: &ResolvedArg) -> Option<i64> {
    match v {
        ResolvedArg::Int(i) => Some(*i),
        _ => None,
    }
}

pub(super) fn double(v: &ResolvedArg) -> Option<f64> {
    match v {
        ResolvedArg::Float(x) => Some(*x),
        ResolvedArg::Int(i) => Some(*i as f64),
        ResolvedArg::Bool(b) => Some(f64::from(u8::from(*b))),
        _ => None,
    }
}

/// Bools and PyTorch's enumerations, which cross as 32-bit numbers.
pub(super) fn half(v: &ResolvedArg) -> Option<i32> {
    match v {
        ResolvedArg::Bool(b) => Some(i32::from(*b)),
        ResolvedArg::DType(d) => Some(d.scalar_type()),
        ResolvedArg::Layout(l) => (l.trim_start_matches("torch.") == "strided").then_some(0),
        ResolvedArg::MemoryFormat(m) => {
            let names = ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"];
            names.iter().position(|n| *n == m.trim_start_matches("torch.")).map(|i| i as i32)
        }
        _ => None,
    }
}

/// `c10::DeviceType` and index.
pub(super) fn device(d: Device) -> Option<(i32, i32)> {
    match d {
        Device::Cpu => Some((0, -1)),
        Device::Cuda(i) => Some((1, i32::from(i))),
        Device::Meta => Some((14, -1)),
        Device::Npu(_) => None,
    }
}

macro_rules! caller {
    ($(#[$doc:meta])* $name:ident, ($($w:literal)*), ($($d:literal)*)) => {
        $(#[$doc])*
        unsafe fn $name(function: *mut c_void, w: &[u64; MAX_WORDS], d: &[f64; MAX_DOUBLES]) -> i32 {
            // SAFETY: code of a C function; see the module's comment for why more arguments than it has do no harm.
            unsafe {
                let f: unsafe extern "C" fn($(caller!(@word $w)),*, $(caller!(@double $d)),*) -> i32 =
                    std::mem::transmute(function);
                f($(w[$w]),*, $(d[$d]),*)
            }
        }
    };
    (@word $w:literal) => { u64 };
    (@double $d:literal) => { f64 };
}

caller! {
    /// # Safety
    /// `function` takes at most twelve integers or pointers and two doubles, and `w` and `d` hold what it expects.
    call_few, (0 1 2 3 4 5 6 7 8 9 10 11), (0 1)
}
caller! {
    /// # Safety
    /// `function` takes at most 32 integers or pointers and eight doubles, and `w` and `d` hold what it expects.
    call_many, (0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31), (0 1 2 3 4 5 6 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_signatures_use_known_letters() {
        assert!(SHIMS.windows(2).all(|w| w[0].0 < w[1].0));
        for (op, _, code) in SHIMS {
            assert!(code.chars().all(|c| "OTtHhijLldeDqbcBVsSGRr".contains(c)), "{op}");
            assert!(!code[1..].contains('O'), "{op}");
        }
    }

    #[test]
    fn a_schema_gives_its_signature() {
        let s = |t| signature(&Schema::parse(t).unwrap());
        let conv = "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, \
            SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, \
            SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)";
        assert_eq!(s(conv).as_deref(), Some("TTTlLLLbLiBRRR"));
        assert_eq!(
            s("aten::x(Tensor? a, Device? d, Generator? g=None, Scalar b=1) -> Tensor").as_deref(),
            Some("tVGdR")
        );
        assert_eq!(s("aten::x(Tensor a) -> int").as_deref(), Some("Tr"));
        assert_eq!(s("aten::x(Dimname a) -> Tensor"), None);
    }

    /// `PERMALLOY_TEST_SCHEMAS` names a file of lines `aten.mm.default<TAB>schema`, as PyTorch prints them.
    #[test]
    fn every_schema_of_pytorch_parses_and_agrees_with_the_table() {
        let Some(path) = std::env::var_os("PERMALLOY_TEST_SCHEMAS") else {
            eprintln!("skipped: PERMALLOY_TEST_SCHEMAS is not set");
            return;
        };
        let text = std::fs::read_to_string(path).unwrap();
        let (mut odd, mut disagree, mut known) = (Vec::new(), Vec::new(), 0);
        for (op, schema) in text.lines().filter_map(|l| l.split_once('\t')) {
            let schema = match Schema::parse(schema) {
                Ok(s) => s,
                Err(_) if schema.contains("...") => continue,
                Err(e) => panic!("{op}: {e}"),
            };
            odd.extend(
                schema.args.iter().filter(|a| matches!(&a.ty, SchemaType::Other(_))).map(|a| format!("{op} {a:?}")),
            );
            let Ok(row) = SHIMS.binary_search_by(|(name, _, _)| (*name).cmp(op)) else { continue };
            known += 1;
            let (_, _, code) = SHIMS[row];
            let wanted = signature(&schema).unwrap_or_default();
            let args = wanted.trim_end_matches('R');
            if code != wanted && code != args && code.strip_prefix('O') != Some(args) {
                disagree.push(format!("{op}: {code} {wanted}"));
            }
        }
        assert_eq!(known, SHIMS.len());
        eprintln!("{odd:#?}\n{disagree:#?}");
        assert!(disagree.len() <= 4, "{disagree:#?}");
    }
}
