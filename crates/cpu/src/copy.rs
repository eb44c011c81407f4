//! Strided rectangles between memory and tiles, with the dtype conversion that belongs to it.

use crate::class::{Element, with_element};
use crate::isa::Isa;
use crate::multiversion;
use permalloy_ir::DType;

/// A rectangle of `n_o` by `n_i` elements, its steps in elements on either side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rect {
    pub n_o: usize,
    pub n_i: usize,
    pub from_o: isize,
    pub from_i: isize,
    pub to_o: isize,
    pub to_i: isize,
}

impl Rect {
    /// One row where rows follow each other on both sides.
    fn flattened(mut self) -> Rect {
        let n = self.n_i as isize;
        if self.n_i == 1 {
            // A column is a row with the outer steps.
            return Rect { n_o: 1, n_i: self.n_o, from_i: self.from_o, to_i: self.to_o, ..self };
        }
        if self.from_o == n * self.from_i && self.to_o == n * self.to_i {
            self.n_i *= self.n_o;
            self.n_o = 1;
        }
        self
    }
}

/// `to[o, i] = convert(from[o, i])`, in the order that suits the strides.
#[inline(always)]
unsafe fn rectangle<S: Copy, D: Copy>(to: *mut D, from: *const S, r: Rect, convert: impl Fn(S) -> D + Copy) {
    let Rect { n_o, n_i, from_o, from_i, to_o, to_i } = r.flattened();
    // SAFETY: every address lies in the rectangles the caller vouches for.
    unsafe {
        match (from_i, to_i) {
            (1, 1) => {
                for o in 0..n_o as isize {
                    let (f, t) = (from.offset(o * from_o), to.offset(o * to_o));
                    for i in 0..n_i {
                        t.add(i).write(convert(f.add(i).read()));
                    }
                }
            }
            (0, 1) => {
                for o in 0..n_o as isize {
                    let (x, t) = (convert(from.offset(o * from_o).read()), to.offset(o * to_o));
                    for i in 0..n_i {
                        t.add(i).write(x);
                    }
                }
            }
            // Memory runs along the outer dimension on one side: blocks are transposed on the way.
            _ if from_o == 1 && to_i == 1 => transpose(to, to_o, from, from_i, (n_o, n_i), convert),
            _ if from_i == 1 && to_o == 1 => transpose(to, to_i, from, from_o, (n_i, n_o), convert),
            _ if n_o > 1 && (from_o.abs() == 1 || to_o.abs() == 1) => {
                for i in 0..n_i as isize {
                    let (f, t) = (from.offset(i * from_i), to.offset(i * to_i));
                    for o in 0..n_o as isize {
                        t.offset(o * to_o).write(convert(f.offset(o * from_o).read()));
                    }
                }
            }
            _ => {
                for o in 0..n_o as isize {
                    let (f, t) = (from.offset(o * from_o), to.offset(o * to_o));
                    for i in 0..n_i as isize {
                        t.offset(i * to_i).write(convert(f.offset(i * from_i).read()));
                    }
                }
            }
        }
    }
}

/// `to[o · to_o + i] = convert(from[i · from_i + o])`, eight by eight.
#[inline(always)]
unsafe fn transpose<S: Copy, D: Copy>(
    to: *mut D,
    to_o: isize,
    from: *const S,
    from_i: isize,
    (n_o, n_i): (usize, usize),
    convert: impl Fn(S) -> D + Copy,
) {
    const SIDE: usize = 8;
    let (whole_o, whole_i) = (n_o / SIDE * SIDE, n_i / SIDE * SIDE);
    // SAFETY: every address lies in the rectangles the caller vouches for; blocks are read and written unaligned.
    unsafe {
        for i in (0..whole_i).step_by(SIDE) {
            for o in (0..whole_o).step_by(SIDE) {
                let f = from.offset(i as isize * from_i).add(o);
                let rows: [[S; SIDE]; SIDE] =
                    std::array::from_fn(|k| f.offset(k as isize * from_i).cast::<[S; SIDE]>().read_unaligned());
                let columns: [[D; SIDE]; SIDE] = std::array::from_fn(|k| std::array::from_fn(|l| convert(rows[l][k])));
                for (k, column) in columns.into_iter().enumerate() {
                    to.offset((o + k) as isize * to_o).add(i).cast::<[D; SIDE]>().write_unaligned(column);
                }
            }
        }
        for o in 0..n_o {
            for i in if o < whole_o { whole_i } else { 0 }..n_i {
                let x = from.offset(i as isize * from_i).add(o).read();
                to.offset(o as isize * to_o).add(i).write(convert(x));
            }
        }
    }
}

#[inline(always)]
unsafe fn load_body<I: Isa>(dtype: DType, to: *mut u8, from: *const u8, r: Rect) {
    // SAFETY: passed on.
    with_element!(dtype, T => unsafe { rectangle::<T, <T as Element>::Held>(to.cast(), from.cast(), r, |x| x.hold()) })
}
multiversion! {
    /// Memory of `dtype` to a tile of its class.
    pub(crate) unsafe fn load = load_body; (dtype: DType, to: *mut u8, from: *const u8, r: Rect)
}

#[inline(always)]
unsafe fn store_body<I: Isa>(dtype: DType, to: *mut u8, from: *const u8, r: Rect) {
    // SAFETY: passed on.
    with_element!(dtype, T => unsafe {
        rectangle::<<T as Element>::Held, T>(to.cast(), from.cast(), r, <T as Element>::round)
    })
}
multiversion! {
    /// A tile to memory of `dtype`, rounding to it.
    pub(crate) unsafe fn store = store_body; (dtype: DType, to: *mut u8, from: *const u8, r: Rect)
}

#[inline(always)]
unsafe fn gather_body<I: Isa>(dtype: DType, to: *mut u8, from: *const u8, at: *const i64, n: usize) {
    // SAFETY: the caller has checked the addresses.
    with_element!(dtype, T => unsafe {
        let (from, to) = (from.cast::<T>(), to.cast::<<T as Element>::Held>());
        for i in 0..n {
            to.add(i).write(from.offset(at.add(i).read() as isize).read().hold());
        }
    })
}
multiversion! {
    /// `to[i] = from[at[i]]`.
    pub(crate) unsafe fn gather = gather_body; (dtype: DType, to: *mut u8, from: *const u8, at: *const i64, n: usize)
}

#[inline(always)]
unsafe fn count_body<I: Isa>(to: *mut i64, first: i64, r: Rect) {
    // SAFETY: the caller vouches for the rectangle.
    unsafe {
        for o in 0..r.n_o as isize {
            let (start, t) = (first.wrapping_add((o as i64).wrapping_mul(r.from_o as i64)), to.offset(o * r.to_o));
            for i in 0..r.n_i {
                t.add(i).write(start.wrapping_add((i as i64).wrapping_mul(r.from_i as i64)));
            }
        }
    }
}
multiversion! {
    /// `to[o, i] = first + o·from_o + i·from_i`.
    pub(crate) unsafe fn count = count_body; (to: *mut i64, first: i64, r: Rect)
}
