//! What a family of devices wants of a kernel, as data: a new family is a new description.

use permalloy_ir::DType;
use permalloy_loops::Limits;

/// Which dialect of Triton compiles for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Cuda,
    Ascend,
}

/// Tile sizes to start from, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiles {
    /// Points of a pointwise tile.
    pub pointwise: u32,
    /// The same where some operand runs along another axis than the others.
    pub transposed: u32,
    /// Longest row that a program holds as a whole.
    pub persistent: u32,
    /// Points of the tile of a reduction.
    pub reduction: u32,
    /// Points of a tile of whole rows, if it is of no column reduction.
    pub rows: u32,
    /// Points of the tile of a sum of everything.
    pub total: u32,
    /// Kept elements of the tile of a column reduction; the rest of `reduction` is rows.
    pub columns: u32,
    /// Elements that one warp should hold of a tile.
    pub per_warp: u32,
}

/// One kind of device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// As the user names it.
    pub name: &'static str,
    pub family: Family,
    /// What the compiler calls it: compute capability, or the chip.
    pub arch: &'static str,
    /// Streaming multiprocessors, or vector cores.
    pub cores: u32,
    /// Programs a core should get of a reduction that is divided among programs.
    pub waves: u32,
    /// Largest number of warps of a program; 1 where the notion does not exist.
    pub max_warps: u32,
    /// Shared memory of a program, or the unified buffer of a vector core.
    pub on_chip_bytes: u32,
    /// Width of a vector access; addresses are kept aligned to it.
    pub access_bytes: u32,
    /// Distinct loads of one kernel, beyond which compiling takes minutes or registers spill.
    pub max_loads: usize,
    /// Programs of one launch.
    pub max_programs: i64,
    /// One program a core walks over all tiles that fall to it.
    pub walks_tiles: bool,
    /// Indices of a tile may be divided (`x // n`, `x % n`); elsewhere only what is affine in a tile index is a plain access.
    pub divides_tile_index: bool,
    /// A load whose address depends on a loaded index may stand in a fused kernel.
    pub indexed_loads: bool,
    /// A load may repeat an element along a dim of the tile.
    pub repeats_elements: bool,
    /// A tile of two dims may be folded to one element; elsewhere what is left of it is flattened before.
    pub folds_to_one: bool,
    /// Stores to every n-th element may have constant offsets. triton-ascend fails on some pairs of those that fill each
    /// other's gaps.
    pub interleaves_stores: bool,
    /// `div_rn` and `sqrt_rn` exist.
    pub ieee_division: bool,
    /// Dtypes that neither memory nor arithmetic may have.
    pub forbidden_dtypes: &'static [DType],
    pub tiles: Tiles,
}

const CUDA_TILES: Tiles = Tiles {
    pointwise: 1024,
    transposed: 1024,
    persistent: 8192,
    reduction: 4096,
    rows: 1024,
    total: 2048,
    columns: 128,
    per_warp: 512,
};
const ASCEND_TILES: Tiles = Tiles {
    pointwise: 2048,
    transposed: 1024,
    persistent: 4096,
    reduction: 2048,
    rows: 2048,
    total: 2048,
    columns: 256,
    per_warp: u32::MAX,
};

const CUDA: Device = Device {
    name: "cuda-sm90",
    family: Family::Cuda,
    arch: "90",
    cores: 132,
    waves: 4,
    max_warps: 16,
    on_chip_bytes: 227 * 1024,
    access_bytes: 16,
    max_loads: 48,
    max_programs: i32::MAX as i64,
    walks_tiles: false,
    divides_tile_index: true,
    indexed_loads: true,
    repeats_elements: true,
    folds_to_one: true,
    interleaves_stores: true,
    ieee_division: true,
    forbidden_dtypes: &[],
    tiles: CUDA_TILES,
};

const ASCEND: Device = Device {
    name: "ascend-a2",
    family: Family::Ascend,
    arch: "Ascend910B3",
    cores: 40,
    waves: 1,
    max_warps: 1,
    on_chip_bytes: 192 * 1024,
    access_bytes: 32,
    // Their own 290-load kernel took 12 minutes to compile.
    max_loads: 24,
    max_programs: 65535,
    walks_tiles: true,
    divides_tile_index: false,
    indexed_loads: false,
    repeats_elements: false,
    folds_to_one: false,
    interleaves_stores: false,
    ieee_division: false,
    forbidden_dtypes: &[DType::F64],
    tiles: ASCEND_TILES,
};

/// Every device there is a description of.
pub const DEVICES: [Device; 5] = [
    Device { name: "cuda-sm80", arch: "80", cores: 108, on_chip_bytes: 163 * 1024, ..CUDA },
    CUDA,
    Device { name: "cuda-sm100", arch: "100", cores: 148, ..CUDA },
    ASCEND,
    Device {
        name: "ascend-a5",
        arch: "Ascend910_9589",
        cores: 64,
        on_chip_bytes: 256 * 1024,
        indexed_loads: true,
        ..ASCEND
    },
];

impl Device {
    /// The description of this name.
    pub fn of(name: &str) -> Option<&'static Device> {
        DEVICES.iter().find(|d| d.name == name)
    }

    /// How far fusion may go for this device.
    pub fn limits(&self) -> Limits {
        // An Ascend program walks tiles of several rows, and a second launch costs more there.
        let many_rows = if self.family == Family::Cuda { i64::from(self.cores * self.waves) } else { 0 };
        Limits { operands: self.max_loads, many_rows, recompute: true, grouped: 1, ..Limits::CPU }
    }
}
