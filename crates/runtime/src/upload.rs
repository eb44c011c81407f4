//! Bytes of ours as tensors of a provider's, and waiting for what is queued on its device.

use crate::provider::Provider;
use crate::tensor::{TensorHandle, extent};
use permalloy_ir::DType;

/// A tensor whose memory, from its first element to the last one it reaches, holds `bytes`.
///
/// `strides` count elements and may let elements share memory. There must be as many bytes as they reach.
pub fn upload(
    provider: &dyn Provider,
    dtype: DType,
    shape: &[i64],
    strides: &[i64],
    bytes: &[u8],
) -> Result<TensorHandle, String> {
    let count = extent(shape, strides).ok_or("a tensor of this size cannot be made")?;
    if usize::try_from(count).ok().and_then(|n| n.checked_mul(dtype.size())) != Some(bytes.len()) {
        return Err(format!("{} bytes for {count} elements of {dtype}", bytes.len()));
    }
    let host = provider.empty_on_host(dtype, count)?;
    // SAFETY: fresh memory of the host's for `count` elements, which are as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host.data_ptr(), bytes.len()) };
    let base = if provider.reaches(&host) {
        host
    } else {
        let base = provider.empty(dtype, &[count], &[1])?;
        base.copy_from(&host)?;
        base
    };
    base.view(shape, strides, 0)
}

/// Returns when everything that was queued before a tensor's last write is done.
pub fn wait_for(provider: &dyn Provider, tensor: &TensorHandle) -> Result<(), String> {
    if provider.uses_pools() || tensor.shape().contains(&0) {
        return Ok(());
    }
    let dtype = tensor.dtype().ok_or("a tensor of an unknown dtype")?;
    // A copy to the host waits for the device.
    provider.empty_on_host(dtype, 1)?.copy_from(&tensor.view(&[1], &[1], 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::EmbeddedProvider;

    #[test]
    fn elements_lie_by_their_strides_and_may_share_memory() {
        let provider = EmbeddedProvider::new(1);
        let bytes: Vec<u8> = [1i32, 2, 3, 4].iter().flat_map(|i| i.to_le_bytes()).collect();
        let values = |shape: &[i64], strides: &[i64], n: usize| match upload(
            &provider,
            DType::I32,
            shape,
            strides,
            &bytes[..4 * n],
        )
        .unwrap()
        {
            TensorHandle::Plain(t) => t.values::<i32>(),
            TensorHandle::Torch(_) => vec![],
        };
        assert_eq!(values(&[2, 2], &[1, 2], 4), [1, 3, 2, 4]);
        assert_eq!(values(&[2, 3], &[0, 1], 3), [1, 2, 3, 1, 2, 3]);
        assert_eq!(values(&[0, 3], &[3, 1], 0), Vec::<i32>::new());
        let e = upload(&provider, DType::I32, &[3], &[1], &bytes).unwrap_err();
        assert_eq!(e, "16 bytes for 3 elements of i32");
    }
}
