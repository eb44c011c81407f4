//! Tensors of the interpreter: dense, row-major, f64 or i64 whatever the dtype.

use crate::round::wrap;
use permalloy_ir::DType;

/// Elements in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// Of a float dtype.
    F(Vec<f64>),
    /// Of an integer dtype; bool as 0 and 1.
    I(Vec<i64>),
}

/// A tensor value.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Data,
}

/// Most elements a tensor may have here; beyond it a run is an error, not an allocation failure.
const MAX_ELEMENTS: usize = 1 << 26;

impl Tensor {
    pub fn floats(dtype: DType, shape: &[usize], data: Vec<f64>) -> Tensor {
        Tensor { dtype, shape: shape.to_vec(), data: Data::F(data) }
    }

    pub fn ints(dtype: DType, shape: &[usize], data: Vec<i64>) -> Tensor {
        Tensor { dtype, shape: shape.to_vec(), data: Data::I(data) }
    }

    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements of a float tensor.
    pub fn as_floats(&self) -> Option<&[f64]> {
        match &self.data {
            Data::F(v) => Some(v),
            Data::I(_) => None,
        }
    }

    /// Elements of an integer or bool tensor.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::I(v) => Some(v),
            Data::F(_) => None,
        }
    }

    /// The three fields agree; for tensors that came from outside.
    pub(crate) fn check(&self) -> Result<(), String> {
        sizes(&self.shape.iter().map(|s| i64::try_from(*s).unwrap_or(i64::MAX)).collect::<Vec<_>>())?;
        let numel = self.numel();
        let (length, kind_ok) = match &self.data {
            Data::F(v) => (v.len(), self.dtype.is_float()),
            Data::I(v) => (v.len(), self.dtype.is_int() || self.dtype == DType::Bool),
        };
        if !self.dtype.is_computed() {
            return Err(format!("dtype {} has no arithmetic", self.dtype));
        }
        if !kind_ok {
            return Err(format!("the elements are not of a kind that {} holds", self.dtype));
        }
        if length != numel {
            return Err(format!("{length} elements do not fill shape {:?}", self.shape));
        }
        match &self.data {
            Data::I(v) => match v.iter().find(|x| wrap(self.dtype, **x) != **x) {
                Some(x) => Err(format!("{x} does not fit {}", self.dtype)),
                None => Ok(()),
            },
            Data::F(_) => Ok(()),
        }
    }

    /// A tensor of another shape whose element at `index` is this one's at the flat position `pick(index)`, or zero.
    pub(crate) fn rearrange(&self, shape: &[usize], mut pick: impl FnMut(&[usize]) -> Option<usize>) -> Tensor {
        let picks: Vec<Option<usize>> = indices(shape).map(|i| pick(&i)).collect();
        let data = match &self.data {
            Data::F(v) => Data::F(picks.iter().map(|p| p.map_or(0.0, |p| v[p])).collect()),
            Data::I(v) => Data::I(picks.iter().map(|p| p.map_or(0, |p| v[p])).collect()),
        };
        Tensor { dtype: self.dtype, shape: shape.to_vec(), data }
    }
}

/// A shape from evaluated sizes.
pub(crate) fn sizes(values: &[i64]) -> Result<Vec<usize>, String> {
    let shape: Vec<usize> =
        values.iter().map(|v| usize::try_from(*v).map_err(|_| format!("{v} is no size"))).collect::<Result<_, _>>()?;
    // Zero sizes aside, so that no prefix product overflows either.
    let bound = shape.iter().filter(|s| **s > 0).try_fold(1usize, |n, s| n.checked_mul(*s));
    if bound.is_some_and(|n| n <= MAX_ELEMENTS) { Ok(shape) } else { Err(too_large(&shape)) }
}

fn too_large(shape: &[usize]) -> String {
    format!("shape {shape:?} has more than {MAX_ELEMENTS} elements, too many for the interpreter")
}

/// Every index of a shape, in row-major order.
pub(crate) fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let numel: usize = shape.iter().product();
    (0..numel).map(move |flat| {
        let mut rest = flat;
        let mut index = vec![0; shape.len()];
        for (i, size) in shape.iter().enumerate().rev() {
            index[i] = rest % size;
            rest /= size;
        }
        index
    })
}

/// Row-major position of an index.
pub(crate) fn flat(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |flat, (i, size)| flat * size + i)
}
