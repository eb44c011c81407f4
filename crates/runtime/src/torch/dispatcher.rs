//! Calls through PyTorch's dispatcher: any operator, by name, its arguments as `StableIValue`s.
//!
//! An argument's value is a 64-bit word. Optionals and lists are heap objects that the callee frees, so they are made
//! anew for each call; tensors are handed over with a reference of their own.

use super::api::{Api, RawHandle, RawTensor, StableValue};
use super::schema::{Schema, SchemaType};
use super::shims::{Handles, device, double, half, int};
use super::tensor::TorchTensor;
use crate::provider::{ResolvedArg, ResolvedCall};
use crate::tensor::TensorHandle;
use std::ffi::{CString, c_void};

/// An operator by name, its arguments ready to be turned into words.
pub struct DispatcherCall {
    name: CString,
    overload: CString,
    args: Vec<Word>,
    returns: Vec<SchemaType>,
    operator_new: unsafe extern "C" fn(usize) -> *mut c_void,
}

/// How an argument becomes a `StableIValue`.
enum Word {
    Plain(StableValue),
    Tensor(usize),
    Text(Box<str>),
    Optional(Box<Word>),
    List(Vec<Word>),
}

impl DispatcherCall {
    /// The call, or the reason why the dispatcher's C function cannot make it.
    pub fn prepare(api: &'static Api, schema: &Schema, call: &ResolvedCall) -> Result<DispatcherCall, String> {
        let args = (schema.args.iter().zip(schema.bind(call)?))
            .map(|(a, v)| word(&a.ty, &v).map_err(|e| format!("argument {}: {e}", a.name)))
            .collect::<Result<Vec<_>, _>>()?;
        for r in &schema.returns {
            let tensors = |t: &SchemaType| *t == SchemaType::Tensor;
            let known = match r {
                SchemaType::Int | SchemaType::Float | SchemaType::Bool => true,
                SchemaType::List(inner, _) | SchemaType::Optional(inner) => tensors(inner),
                other => tensors(other),
            };
            if !known {
                return Err(format!("the dispatcher's C function returns no {r:?}"));
            }
        }
        if args.iter().any(Word::needs_lists) && (api.new_list_reserve_size.is_none() || api.list_push_back.is_none()) {
            return Err("this PyTorch has no lists in its C interface".into());
        }
        if args.iter().any(Word::needs_text) && api.new_string_handle.is_none() {
            return Err("this PyTorch has no strings in its C interface".into());
        }
        let text = |s: &str| CString::new(s).map_err(|_| "a name with a NUL byte".to_string());
        Ok(DispatcherCall {
            name: text(&schema.name)?,
            overload: text(&schema.overload)?,
            args,
            returns: schema.returns.clone(),
            operator_new: operator_new(api),
        })
    }

    /// Calls; false on an error of torch's. List results are laid flat.
    pub fn call(
        &self,
        api: &'static Api,
        tensors: &[&TensorHandle],
        results: &mut Vec<Option<TensorHandle>>,
    ) -> Result<bool, String> {
        let mut handles = Handles::of(tensors)?;
        let handles = handles.as_mut();
        let mut stack = Vec::with_capacity(self.args.len().max(self.returns.len()));
        for a in &self.args {
            stack.push(self.value(api, a, handles)?);
        }
        stack.resize(stack.len().max(self.returns.len()), 0);
        let (name, overload) = (self.name.as_ptr(), self.overload.as_ptr());
        // SAFETY: the words follow the operator's schema, of which PyTorch gave the text; the stack has room for
        // arguments and results alike; the callee takes over the heap objects among the arguments.
        let code = unsafe {
            match api.call_dispatcher_versioned {
                Some(call) => call(name, overload, stack.as_mut_ptr(), (api.abi_version)()),
                None => (api.call_dispatcher)(name, overload, stack.as_mut_ptr()),
            }
        };
        if code != 0 {
            return Ok(false);
        }
        for (ty, value) in self.returns.iter().zip(stack) {
            match ty {
                SchemaType::Tensor => results.push(take(api, value)),
                SchemaType::Optional(_) => results.push(match value {
                    0 => None,
                    p => {
                        // SAFETY: a heap-allocated word that is ours now, made by `operator new`, which is `malloc`'s.
                        let inner = unsafe {
                            let inner = *(p as *const StableValue);
                            libc::free(p as *mut c_void);
                            inner
                        };
                        take(api, inner)
                    }
                }),
                SchemaType::List(..) => take_list(api, value as RawHandle, results)?,
                _ => results.push(None),
            }
        }
        Ok(true)
    }

    fn value(&self, api: &Api, word: &Word, handles: &[RawTensor]) -> Result<StableValue, String> {
        Ok(match word {
            Word::Plain(w) => *w,
            Word::Tensor(i) => {
                let mut owned = std::ptr::null_mut();
                // SAFETY: a live handle and a writable result; the callee deletes the new handle.
                let code = unsafe { (api.new_tensor_handle)(handles[*i], &mut owned) };
                super::tensor::check(api, "new_tensor_handle", code)?;
                owned as u64
            }
            Word::Text(text) => {
                let new = api.new_string_handle.ok_or("no strings")?;
                let mut handle = std::ptr::null_mut();
                // SAFETY: a pointer with its length and a writable result; the callee deletes the string.
                super::tensor::check(api, "new_string_handle", unsafe {
                    new(text.as_ptr().cast(), text.len(), &mut handle)
                })?;
                handle as u64
            }
            Word::Optional(inner) => {
                let inner = self.value(api, inner, handles)?;
                // SAFETY: room for one word, which the callee frees with `operator delete`.
                unsafe {
                    let p = (self.operator_new)(size_of::<StableValue>()).cast::<StableValue>();
                    p.write(inner);
                    p as u64
                }
            }
            Word::List(items) => {
                let (new, push) = api.new_list_reserve_size.zip(api.list_push_back).ok_or("no lists")?;
                let mut list = std::ptr::null_mut();
                // SAFETY: a writable result; the callee deletes the list.
                super::tensor::check(api, "new_list_reserve_size", unsafe { new(items.len(), &mut list) })?;
                for item in items {
                    let item = self.value(api, item, handles)?;
                    // SAFETY: the list just made.
                    super::tensor::check(api, "list_push_back", unsafe { push(list, item) })?;
                }
                list as u64
            }
        })
    }
}

impl Word {
    fn needs_lists(&self) -> bool {
        match self {
            Word::List(_) => true,
            Word::Optional(inner) => inner.needs_lists(),
            _ => false,
        }
    }

    fn needs_text(&self) -> bool {
        match self {
            Word::Text(_) => true,
            Word::Optional(inner) => inner.needs_text(),
            Word::List(items) => items.iter().any(Word::needs_text),
            _ => false,
        }
    }
}

/// Takes a tensor result over; None when the operator left it undefined.
fn take(api: &'static Api, value: StableValue) -> Option<TensorHandle> {
    // SAFETY: the operator succeeded, so that the word is an owning handle or null.
    let tensor = unsafe { TorchTensor::from_raw(api, value as RawTensor) };
    tensor.filter(TorchTensor::is_defined).map(TensorHandle::Torch)
}

fn take_list(api: &'static Api, list: RawHandle, results: &mut Vec<Option<TensorHandle>>) -> Result<(), String> {
    let (size, get) = api.list_size.zip(api.list_get_item).ok_or("no lists")?;
    let mut n = 0;
    // SAFETY: a list that is ours now; each item is an owning handle that is taken once.
    unsafe {
        super::tensor::check(api, "list_size", size(list, &mut n))?;
        for i in 0..n {
            let mut item = 0;
            super::tensor::check(api, "list_get_item", get(list, i, &mut item))?;
            results.push(take(api, item));
        }
        if let Some(delete) = api.delete_list {
            delete(list);
        }
    }
    Ok(())
}

/// An argument of that type as a word, or why it cannot be one.
fn word(ty: &SchemaType, value: &ResolvedArg) -> Result<Word, String> {
    let misfit = || format!("{value:?} is no {ty:?}");
    Ok(match (ty, value) {
        (SchemaType::Optional(_), ResolvedArg::None) => Word::Plain(0),
        (SchemaType::Optional(inner), v) => Word::Optional(Box::new(word(inner, v)?)),
        (SchemaType::List(inner, _), ResolvedArg::List(items)) => {
            Word::List(items.iter().map(|v| word(inner, v)).collect::<Result<_, _>>()?)
        }
        (SchemaType::Tensor, ResolvedArg::Tensor(i)) => Word::Tensor(*i),
        (SchemaType::Int, v) => Word::Plain(int(v).ok_or_else(misfit)? as u64),
        (SchemaType::Float, v) => Word::Plain(double(v).ok_or_else(misfit)?.to_bits()),
        (SchemaType::Bool | SchemaType::ScalarType | SchemaType::Layout | SchemaType::MemoryFormat, v) => {
            Word::Plain(half(v).ok_or_else(misfit)? as u32 as u64)
        }
        (SchemaType::Device, ResolvedArg::Device(d)) => {
            let (ty, index) = device(*d).ok_or_else(misfit)?;
            Word::Plain(((ty as u64) << 32) | u64::from(index as u32))
        }
        (SchemaType::Str, ResolvedArg::Str(text)) => Word::Text((&**text).into()),
        (SchemaType::Scalar | SchemaType::Generator | SchemaType::Other(_), _) => {
            return Err(format!("the dispatcher's C function takes no {ty:?}"));
        }
        _ => return Err(misfit()),
    })
}

/// C++ `operator new(size_t)`, the partner of the `delete` that the callee runs.
fn operator_new(api: &Api) -> unsafe extern "C" fn(usize) -> *mut c_void {
    let symbol = if cfg!(target_pointer_width = "64") { "_Znwm\0" } else { "_Znwj\0" };
    match api.symbol(symbol) {
        // SAFETY: the mangled name fixes the signature.
        Some(p) => unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(p) },
        None => libc::malloc,
    }
}
