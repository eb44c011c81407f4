//! Nodes over no elements: nothing runs for them.

use super::*;

pub(super) fn is_empty(shape: &[Dim]) -> bool {
    shape.iter().any(|n| n.is_const(0))
}

impl<'g> Lowering<'g> {
    /// An empty result is memory of no size; a reduction of nothing is its identity.
    pub(super) fn place_empty(&mut self, work: &Work) -> Result<(), String> {
        let result = work.result;
        match work.kind {
            WorkKind::Reduce(op, _) if !is_empty(&self.infos[result].shape) => {
                let one = identity(op, work.dtype).ok_or_else(|| format!("{op} of no elements has no value"))?;
                self.infos[result].home = Some(Home::Const(one));
            }
            _ => self.empty_value(result),
        }
        Ok(())
    }

    pub(super) fn empty_value(&mut self, result: Val) {
        let buffer = self.dense_buffer(result, BufferKind::Intermediate);
        let (_, layout) = self.shapes.dense(&self.infos[result].shape);
        self.infos[result].home = Some(Home::Memory { buffer, layout, writers: vec![] });
    }
}

pub(super) fn zero(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(false),
        d if d.is_float() => Scalar::Float(0.0),
        _ => Scalar::Int(0),
    }
}

fn identity(op: PrimOp, dtype: DType) -> Option<Scalar> {
    let (low, high) = match dtype {
        DType::I64 => (i64::MIN, i64::MAX),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::U8 => (0, i64::from(u8::MAX)),
        _ => (0, 1),
    };
    let (float, int) = match op {
        PrimOp::Sum | PrimOp::Any => (0.0, 0),
        PrimOp::Prod | PrimOp::All => (1.0, 1),
        PrimOp::Amax => (f64::NEG_INFINITY, low),
        PrimOp::Amin => (f64::INFINITY, high),
        _ => return None,
    };
    Some(match dtype {
        DType::Bool => Scalar::Bool(int != 0),
        d if d.is_float() => Scalar::Float(float),
        _ => Scalar::Int(int),
    })
}
