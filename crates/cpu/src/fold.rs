//! Reduction loops.

use crate::class::Class;
use crate::isa::Isa;
use crate::multiversion;
use permalloy_ir::PrimOp;

/// The operation that joins two partial results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    Sum,
    Prod,
    /// NaN wins.
    Max,
    Min,
}

impl Join {
    /// None for reductions that give positions.
    pub(crate) fn of(op: PrimOp) -> Option<Join> {
        match op {
            PrimOp::Sum => Some(Join::Sum),
            PrimOp::Prod => Some(Join::Prod),
            PrimOp::Amax | PrimOp::Any => Some(Join::Max),
            PrimOp::Amin | PrimOp::All => Some(Join::Min),
            _ => None,
        }
    }

    /// Class in which partial results of many tiles are joined: sums and products of f32 go on in f64.
    pub(crate) fn accumulator(self, class: Class) -> Class {
        match (self, class) {
            (Join::Sum | Join::Prod, Class::F32) => Class::F64,
            _ => class,
        }
    }
}

trait Number: Copy {
    /// In which the lanes of a fold are joined in the end.
    type Wide: Number;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    const HIGHEST: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    /// Comes before `other` as a maximum: greater, or the first NaN.
    fn above(self, other: Self) -> bool;
    fn below(self, other: Self) -> bool;
}

macro_rules! float {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Wide = f64;
            #[inline(always)]
            fn widen(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn narrow(wide: f64) -> $t {
                wide as $t
            }
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            const HIGHEST: $t = $t::INFINITY;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                self * other
            }
            #[inline(always)]
            fn max(self, other: $t) -> $t {
                if self > other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn min(self, other: $t) -> $t {
                if self < other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn above(self, other: $t) -> bool {
                self > other || self.is_nan() && !other.is_nan()
            }
            #[inline(always)]
            fn below(self, other: $t) -> bool {
                self < other || self.is_nan() && !other.is_nan()
            }
        }
    )*};
}
float!(f32, f64);

macro_rules! int {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Wide = $t;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(wide: $t) -> $t {
                wide
            }
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LOWEST: $t = $t::MIN;
            const HIGHEST: $t = $t::MAX;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn max(self, other: $t) -> $t {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn min(self, other: $t) -> $t {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn above(self, other: $t) -> bool {
                self > other
            }
            #[inline(always)]
            fn below(self, other: $t) -> bool {
                self < other
            }
        }
    )*};
}
int!(i64, u8);

/// Runs `$body` with `$T` the held type of a class.
macro_rules! with_held {
    ($class:expr, $T:ident => $body:expr) => {
        match $class {
            Class::F32 => {
                type $T = f32;
                $body
            }
            Class::F64 => {
                type $T = f64;
                $body
            }
            Class::I64 => {
                type $T = i64;
                $body
            }
            Class::U8 => {
                type $T = u8;
                $body
            }
        }
    };
}

/// Lanes of a fold: four AVX-512 vectors of f32.
const LANES: usize = 64;

/// Folds a run: lanes first, then the lanes pairwise. A sum of few terms that cancel shows each rounding, so lanes are joined
/// in a wider type.
#[inline(always)]
unsafe fn run<T: Number>(
    x: *const T,
    n: usize,
    start: T,
    f: impl Fn(T, T) -> T + Copy,
    wide: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) -> T {
    // SAFETY: reads x[..n].
    unsafe {
        if n < 16 {
            let mut total = start.widen();
            for i in 0..n {
                total = wide(total, x.add(i).read().widen());
            }
            return T::narrow(total);
        }
        let mut lanes = [start; LANES];
        let mut at = 0;
        while at + LANES <= n {
            for (l, lane) in lanes.iter_mut().enumerate() {
                *lane = f(*lane, x.add(at + l).read());
            }
            at += LANES;
        }
        if at < n {
            let mut rest = [start; LANES];
            std::ptr::copy_nonoverlapping(x.add(at), rest.as_mut_ptr(), n - at);
            for (lane, r) in lanes.iter_mut().zip(rest) {
                *lane = f(*lane, r);
            }
        }
        let mut half = [start.widen(); LANES / 2];
        for l in 0..LANES / 2 {
            half[l] = wide(lanes[l].widen(), lanes[l + LANES / 2].widen());
        }
        let mut width = LANES / 4;
        while width > 0 {
            for l in 0..width {
                half[l] = wide(half[l], half[l + width]);
            }
            width /= 2;
        }
        T::narrow(half[0])
    }
}

/// Short rows: neighbours are joined pairwise over the whole tile while rows have an even length; what is left of each row is
/// folded in order, several rows at a time. `tmp` has room for the tile.
#[inline(always)]
unsafe fn short_rows<T: Number>(
    mut x: *const T,
    n_o: usize,
    mut n_i: usize,
    out: *mut T,
    tmp: *mut T,
    f: impl Fn(T, T) -> T + Copy,
) {
    const ROWS: usize = 8;
    // SAFETY: the caller vouches for n_o · n_i values and n_o results. Halves alternate between the first half of `tmp` and
    // the quarter after it, so no pass writes what it reads.
    unsafe {
        let halves = [tmp, tmp.add(n_o * n_i / 2)];
        let mut turn = 0;
        while n_i.is_multiple_of(2) {
            let to = halves[turn];
            for k in 0..n_o * n_i / 2 {
                to.add(k).write(f(x.add(2 * k).read(), x.add(2 * k + 1).read()));
            }
            (x, n_i, turn) = (to, n_i / 2, 1 - turn);
        }
        if n_i == 1 {
            return std::ptr::copy_nonoverlapping(x, out, n_o);
        }
        let mut o = 0;
        while o < n_o {
            let rows = ROWS.min(n_o - o);
            let row = |r: usize| x.add((o + r.min(rows - 1)) * n_i);
            let mut totals: [T; ROWS] = std::array::from_fn(|r| row(r).read());
            for i in 1..n_i {
                for (r, total) in totals.iter_mut().enumerate() {
                    *total = f(*total, row(r).add(i).read());
                }
            }
            std::ptr::copy_nonoverlapping(totals.as_ptr(), out.add(o), rows);
            o += rows;
        }
    }
}

/// Rows of fewer values are folded across rows.
const SHORT: usize = 64;

#[inline(always)]
unsafe fn inner_typed<T: Number>(join: Join, x: *const T, (n_o, n_i): (usize, usize), out: *mut T, tmp: *mut T) {
    macro_rules! rows {
        ($start:expr, $join:ident) => {
            if n_i < SHORT && n_o > 1 {
                short_rows(x, n_o, n_i, out, tmp, T::$join)
            } else {
                for o in 0..n_o {
                    out.add(o).write(run(x.add(o * n_i), n_i, $start, T::$join, T::Wide::$join));
                }
            }
        };
    }
    // SAFETY: the caller vouches for n_o · n_i values and n_o results.
    unsafe {
        match join {
            Join::Sum => rows!(T::ZERO, add),
            Join::Prod => rows!(T::ONE, mul),
            Join::Max => rows!(T::LOWEST, max),
            Join::Min => rows!(T::HIGHEST, min),
        }
    }
}

#[inline(always)]
unsafe fn inner_body<I: Isa>(class: Class, join: Join, x: *const u8, n: (usize, usize), out: *mut u8, tmp: *mut u8) {
    // SAFETY: passed on.
    with_held!(class, T => unsafe { inner_typed::<T>(join, x.cast(), n, out.cast(), tmp.cast()) })
}
multiversion! {
    /// `out[o] = fold over i of x[o, i]`, for `n = (n_o, n_i)`, neither 0. `tmp` has room for `x`.
    pub(crate) unsafe fn inner = inner_body;
    (class: Class, join: Join, x: *const u8, n: (usize, usize), out: *mut u8, tmp: *mut u8)
}

/// `acc[i] = acc[i] joined with x[o, i] for every o`, a block of columns at a time.
#[inline(always)]
unsafe fn columns<T: Number>(x: *const T, n_o: usize, n_i: usize, acc: *mut T, f: impl Fn(T, T) -> T + Copy) {
    // SAFETY: the caller vouches for n_o · n_i values and n_i accumulators.
    unsafe {
        let mut at = 0;
        while at + LANES <= n_i {
            let mut lanes = acc.add(at).cast::<[T; LANES]>().read();
            for o in 0..n_o {
                let row = x.add(o * n_i + at);
                for (l, lane) in lanes.iter_mut().enumerate() {
                    *lane = f(*lane, row.add(l).read());
                }
            }
            acc.add(at).cast::<[T; LANES]>().write(lanes);
            at += LANES;
        }
        for o in 0..n_o {
            let row = x.add(o * n_i);
            for i in at..n_i {
                let a = acc.add(i);
                a.write(f(a.read(), row.add(i).read()));
            }
        }
    }
}

/// Narrow columns: adds the lower half of the rows to the upper half until one is left. `tmp` has room for half of `x`.
#[inline(always)]
unsafe fn halving<T: Number>(
    x: *const T,
    n_o: usize,
    n_i: usize,
    acc: *mut T,
    tmp: *mut T,
    f: impl Fn(T, T) -> T + Copy,
) {
    // SAFETY: the caller vouches for the sizes; in the loop the two ranges read and the one written are at the same index.
    unsafe {
        let mut rows = n_o / 2;
        for i in 0..rows * n_i {
            tmp.add(i).write(f(x.add(i).read(), x.add((n_o - rows) * n_i + i).read()));
        }
        if n_o % 2 == 1 {
            columns(x.add(rows * n_i), 1, n_i, acc, f);
        }
        while rows > 1 {
            let half = rows / 2;
            if rows % 2 == 1 {
                columns(tmp.add((rows - 1) * n_i), 1, n_i, acc, f);
            }
            let (low, high) = std::slice::from_raw_parts_mut(tmp, 2 * half * n_i).split_at_mut(half * n_i);
            for (a, b) in low.iter_mut().zip(&*high) {
                *a = f(*a, *b);
            }
            rows = half;
        }
        if rows == 1 {
            columns(tmp, 1, n_i, acc, f);
        }
    }
}

#[inline(always)]
unsafe fn outer_typed<T: Number>(join: Join, x: *const T, n_o: usize, n_i: usize, acc: *mut T, tmp: *mut T) {
    macro_rules! fold {
        ($f:expr) => {
            if n_i < 32 && n_o >= 8 { halving(x, n_o, n_i, acc, tmp, $f) } else { columns(x, n_o, n_i, acc, $f) }
        };
    }
    // SAFETY: passed on.
    unsafe {
        match join {
            Join::Sum => fold!(|a: T, b: T| a.add(b)),
            Join::Prod => fold!(|a: T, b: T| a.mul(b)),
            Join::Max => fold!(|a: T, b: T| a.max(b)),
            Join::Min => fold!(|a: T, b: T| a.min(b)),
        }
    }
}

#[inline(always)]
unsafe fn outer_body<I: Isa>(class: Class, join: Join, x: *const u8, n: (usize, usize), acc: *mut u8, tmp: *mut u8) {
    // SAFETY: passed on.
    with_held!(class, T => unsafe { outer_typed::<T>(join, x.cast(), n.0, n.1, acc.cast(), tmp.cast()) })
}
multiversion! {
    /// `acc[i] = acc[i] joined with the fold over o of x[o, i]`, for `n = (n_o, n_i)`. `tmp` has room for a tile.
    pub(crate) unsafe fn outer = outer_body;
    (class: Class, join: Join, x: *const u8, n: (usize, usize), acc: *mut u8, tmp: *mut u8)
}

#[inline(always)]
unsafe fn widen_body<I: Isa>(join: Join, acc: *mut f64, x: *const f32, n: usize) {
    // SAFETY: the caller vouches for n values each.
    unsafe {
        for i in 0..n {
            let (a, b) = (acc.add(i).read(), f64::from(x.add(i).read()));
            acc.add(i).write(if join == Join::Prod { a * b } else { a + b });
        }
    }
}
multiversion! {
    /// Joins f32 sums or products into f64 ones.
    unsafe fn widen = widen_body; (join: Join, acc: *mut f64, x: *const f32, n: usize)
}

/// `acc[i] = acc[i] joined with x[i]`, where `acc` is of the accumulator class.
///
/// # Safety
/// `n` values each; the level must be one this processor has.
pub(crate) unsafe fn merge(
    level: crate::isa::IsaLevel,
    class: Class,
    join: Join,
    acc: *mut u8,
    x: *const u8,
    n: usize,
) {
    // SAFETY: passed on; with one row nothing is written to the temporary.
    unsafe {
        if join.accumulator(class) == class {
            outer(level, class, join, x, (1, n), acc, std::ptr::null_mut());
        } else {
            widen(level, join, acc.cast(), x.cast(), n);
        }
    }
}

/// Strides of a fold that gives positions: `keep` results, each over `fold` values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgShape {
    pub keep: usize,
    pub fold: usize,
    pub step_keep: usize,
    pub step_fold: usize,
    /// Position of the first value, and from one to the next.
    pub first: i64,
    pub step: i64,
}

/// What an arg fold starts from: any value beats this position.
pub(crate) const NOWHERE: i64 = i64::MAX;

/// Whether `new` is the better one; of equals the one at the lower position.
#[inline(always)]
fn better<T: Number>(max: bool, new: (T, i64), old: (T, i64)) -> bool {
    let (wins, loses) = match max {
        true => (new.0.above(old.0), old.0.above(new.0)),
        false => (new.0.below(old.0), old.0.below(new.0)),
    };
    wins || !loses && new.1 < old.1
}

#[inline(always)]
unsafe fn arg_typed<T: Number>(max: bool, x: *const T, s: ArgShape, best: *mut T, at: *mut i64) {
    // SAFETY: the caller vouches for the shape and for `keep` results.
    unsafe {
        for k in 0..s.keep {
            let mut old = (best.add(k).read(), at.add(k).read());
            for f in 0..s.fold {
                let new = (x.add(k * s.step_keep + f * s.step_fold).read(), s.first + f as i64 * s.step);
                if better(max, new, old) {
                    old = new;
                }
            }
            best.add(k).write(old.0);
            at.add(k).write(old.1);
        }
    }
}

#[inline(always)]
unsafe fn arg_body<I: Isa>(class: Class, max: bool, x: *const u8, s: ArgShape, best: *mut u8, at: *mut i64) {
    // SAFETY: passed on.
    with_held!(class, T => unsafe { arg_typed::<T>(max, x.cast(), s, best.cast(), at) })
}
multiversion! {
    /// Updates best values and their positions.
    pub(crate) unsafe fn arg = arg_body;
    (class: Class, max: bool, x: *const u8, s: ArgShape, best: *mut u8, at: *mut i64)
}

/// Joins two partial results of an arg fold.
///
/// # Safety
/// `n` values and positions on each side.
pub(crate) unsafe fn arg_merge(
    class: Class,
    max: bool,
    into: (*mut u8, *mut i64),
    from: (*const u8, *const i64),
    n: usize,
) {
    // SAFETY: by the contract.
    with_held!(class, T => unsafe {
        let (best, other) = (into.0.cast::<T>(), from.0.cast::<T>());
        for i in 0..n {
            let (new, old) = ((other.add(i).read(), from.1.add(i).read()), (best.add(i).read(), into.1.add(i).read()));
            if better(max, new, old) {
                best.add(i).write(new.0);
                into.1.add(i).write(new.1);
            }
        }
    })
}
