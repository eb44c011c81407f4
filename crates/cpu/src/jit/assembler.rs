//! Bytes of x86-64 instructions: the few forms that [`super::emit`] needs.
//!
//! Vector instructions come in two forms: EVEX on 64 bytes (AVX-512) and VEX on 32 (AVX2). Encodings follow the processors'
//! manual ("Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2).

use crate::isa::IsaLevel;

/// Numbers of general registers.
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;
pub(super) const R8: u8 = 8;

/// How wide vectors are, and with it the form of the instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    /// AVX2: 32 bytes, sixteen registers; masks are vectors of all ones and zeros.
    Half,
    /// AVX-512: 64 bytes, 32 registers, eight more for masks.
    Full,
}

impl Width {
    /// None: code is not made for such processors.
    pub(crate) fn of(level: IsaLevel) -> Option<Width> {
        match level {
            IsaLevel::Portable => None,
            IsaLevel::Avx2 => Some(Width::Half),
            IsaLevel::Avx512 => Some(Width::Full),
        }
    }

    /// Lanes of f32.
    pub(super) fn lanes(self) -> usize {
        if self == Width::Half { 8 } else { 16 }
    }
}

/// Opcode map and mandatory prefix, as EVEX and VEX have them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opcode {
    map: u8,
    prefix: u8,
    /// The bit W of EVEX, and of VEX.
    wide: bool,
    vex_wide: bool,
    code: u8,
    whole: bool,
}

const fn op(map: u8, prefix: u8, code: u8) -> Opcode {
    Opcode { map, prefix, wide: false, vex_wide: false, code, whole: true }
}

impl Opcode {
    const fn wide(self) -> Opcode {
        Opcode { wide: true, ..self }
    }

    const fn vex_wide(self) -> Opcode {
        Opcode { vex_wide: true, ..self }
    }

    /// On sixteen bytes at most.
    const fn xmm(self) -> Opcode {
        Opcode { whole: false, ..self }
    }
}

pub(super) const LOAD: Opcode = op(1, 0, 0x10);
pub(super) const STORE: Opcode = op(1, 0, 0x11);
/// Past the caches; the address must be aligned.
pub(super) const STORE_STREAMING: Opcode = op(1, 0, 0x2b);
pub(super) const MOVE: Opcode = op(1, 0, 0x28);
pub(super) const ADD: Opcode = op(1, 0, 0x58);
pub(super) const MUL: Opcode = op(1, 0, 0x59);
pub(super) const SUB: Opcode = op(1, 0, 0x5c);
pub(super) const MIN: Opcode = op(1, 0, 0x5d);
pub(super) const DIV: Opcode = op(1, 0, 0x5e);
pub(super) const MAX: Opcode = op(1, 0, 0x5f);
pub(super) const SQRT: Opcode = op(1, 0, 0x51);
pub(super) const AND: Opcode = op(1, 0, 0x54);
pub(super) const XOR: Opcode = op(1, 0, 0x57);
/// dst = src1 · dst + src2.
pub(super) const FMA_213: Opcode = op(2, 1, 0xa8);
/// dst = src1 · src2 + dst.
pub(super) const FMA_231: Opcode = op(2, 1, 0xb8);
/// dst = dst - src1 · src2.
pub(super) const FNMA_231: Opcode = op(2, 1, 0xbc);
pub(super) const SCALE: Opcode = op(2, 1, 0x2c);
/// To an integer; the immediate says which way.
pub(super) const ROUND: Opcode = op(3, 1, 0x08);
/// The mask register `dst` = src1 ? src2, by the immediate.
pub(super) const COMPARE: Opcode = op(1, 0, 0xc2);
pub(super) const COMPARE_I64: Opcode = op(3, 1, 0x1f).wide();
pub(super) const BROADCAST: Opcode = op(2, 1, 0x18);
pub(super) const BROADCAST_I64: Opcode = op(2, 1, 0x59).wide();
/// From a general register.
pub(super) const SPREAD_I64: Opcode = op(2, 1, 0x7c).wide();
pub(super) const ADD_I64: Opcode = op(1, 1, 0xd4).wide();
pub(super) const SUB_I64: Opcode = op(1, 1, 0xfb).wide();
/// dst = mask ? src2 : src1.
pub(super) const BLEND: Opcode = op(2, 1, 0x65);
/// Quarters of src1 and of src2 in the order that the immediate says.
pub(super) const SHUFFLE_QUARTERS: Opcode = op(3, 1, 0x23);
/// Lanes of each quarter in the order that the immediate says.
pub(super) const SHUFFLE_LANES: Opcode = op(3, 1, 0x04);
/// The first eight lanes of f32 as f64.
pub(super) const WIDEN_F32: Opcode = op(1, 0, 0x5a);
/// The first lane of f64 as f32; the others are those of src1.
pub(super) const NARROW_ONE_F64: Opcode = op(1, 3, 0x5a).wide().xmm();
pub(super) const ADD_F64: Opcode = op(1, 1, 0x58).wide();
/// Sixteen bytes.
pub(super) const LOAD_BYTES: Opcode = op(1, 3, 0x6f).xmm();
pub(super) const STORE_BYTES: Opcode = op(1, 3, 0x7f).xmm();
/// The mask register `dst` = bytes that are not zero.
pub(super) const TEST_BYTES: Opcode = op(2, 1, 0x26).xmm();
/// Bytes of all ones where the mask is set.
pub(super) const MASK_TO_BYTES: Opcode = op(2, 2, 0x28).xmm();
pub(super) const ABS_BYTES: Opcode = op(2, 1, 0x1c).xmm();
pub(super) const BROADCAST_BYTE: Opcode = op(2, 1, 0x78);

// AVX2 alone.

/// The first lane; in a load the others become zero.
pub(super) const LOAD_ONE: Opcode = op(1, 2, 0x10).xmm();
pub(super) const STORE_ONE: Opcode = op(1, 2, 0x11).xmm();
/// dst = immediate ? src2 : src1, by lanes.
pub(super) const BLEND_LANES: Opcode = op(3, 1, 0x0c);
/// dst = mask ? src2 : src1; the mask is a register, in the high half of the immediate.
pub(super) const BLEND_VECTOR: Opcode = op(3, 1, 0x4a);
pub(super) const OR: Opcode = op(1, 0, 0x56);
/// Halves of src1 and of src2 in the order that the immediate says.
pub(super) const SHUFFLE_HALVES: Opcode = op(3, 1, 0x06);
/// Two lanes of src1, then two of src2, in each half.
pub(super) const SHUFFLE_PAIRS: Opcode = op(1, 0, 0xc6);
/// Quarters in the order that the immediate says.
pub(super) const ORDER_QUARTERS: Opcode = op(3, 1, 0x00).vex_wide();
pub(super) const EQUAL_BYTES: Opcode = op(1, 1, 0x74);
pub(super) const GREATER_I32: Opcode = op(1, 1, 0x66);
pub(super) const EQUAL_I64: Opcode = op(2, 1, 0x29);
pub(super) const GREATER_I64: Opcode = op(2, 1, 0x37);
pub(super) const SUB_I32: Opcode = op(1, 1, 0xfa);
/// By the immediate; the destination stands where others have `src1`, and which shift it is where they have `dst`.
pub(super) const SHIFT_I32: Opcode = op(1, 1, 0x72);
pub(super) const RIGHT: u8 = 2;
pub(super) const LEFT: u8 = 6;
/// Eight bytes of memory as i32.
pub(super) const WIDEN_BYTES: Opcode = op(2, 1, 0x31);
/// With saturation, those of src1 first.
pub(super) const PACK_I32: Opcode = op(1, 1, 0x6b).xmm();
pub(super) const PACK_I16: Opcode = op(1, 1, 0x63).xmm();
pub(super) const STORE_EIGHT_BYTES: Opcode = op(1, 1, 0xd6).xmm();
pub(super) const STORE_BYTE: Opcode = op(3, 1, 0x14).xmm();
/// From a general register.
pub(super) const SET_I64: Opcode = op(1, 1, 0x6e).xmm().vex_wide();

/// Operations on mask registers: dst = src1 op src2.
#[derive(Clone, Copy, Debug)]
pub(super) enum MaskOp {
    And = 0x41,
    Or = 0x45,
    Xnor = 0x46,
    Xor = 0x47,
}

/// The last operand of a vector instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operand {
    Register(u8),
    /// `base + rax · scale + displacement`; without an index if the scale is 0.
    Memory {
        base: u8,
        scale: u8,
        displacement: i32,
    },
    /// One value of the constant pool, for all lanes; in EVEX form alone.
    Constant(usize),
    /// A vector of the constant pool.
    Constants(usize),
}

/// Lanes that an instruction writes; in VEX form all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Lanes {
    All,
    /// Those of the mask register; others are zeroed, or left as they are.
    Zeroed(u8),
    Merged(u8),
}

/// A place that jumps can name before it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// Conditions of jumps, unsigned.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Below = 0x82,
    AboveOrEqual = 0x83,
    Equal = 0x84,
    NotEqual = 0x85,
}

/// Code under construction, with its constants.
#[derive(Clone, Debug)]
pub(super) struct Assembler {
    pub width: Width,
    pub bytes: Vec<u8>,
    pool: Vec<u8>,
    /// Displacements to fill in: where, the end of their instruction, the place in the pool.
    constants: Vec<(usize, usize, usize)>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn new(width: Width) -> Assembler {
        Assembler {
            width,
            bytes: Vec::new(),
            pool: Vec::new(),
            constants: Vec::new(),
            labels: Vec::new(),
            jumps: Vec::new(),
        }
    }

    /// `dst = op(src1, operand)`. Loads and stores have the register first and no `src1` (0).
    pub(super) fn vector(
        &mut self,
        op: Opcode,
        dst: u8,
        src1: u8,
        operand: Operand,
        lanes: Lanes,
        immediate: Option<u8>,
    ) {
        match self.width {
            Width::Full => self.evex(op, dst, src1, operand, lanes),
            Width::Half => self.vex(op, dst, src1, operand),
        }
        self.bytes.push(op.code);
        self.operand(dst, operand, immediate.is_some());
        self.bytes.extend(immediate);
    }

    fn vex(&mut self, op: Opcode, dst: u8, src1: u8, operand: Operand) {
        let b = match operand {
            Operand::Register(r) => r,
            Operand::Memory { base, .. } => base,
            Operand::Constant(_) | Operand::Constants(_) => 0,
        };
        let bit = |v: u8, at: u8| (!(v >> 3) & 1) << at;
        self.bytes.extend([
            0xc4,
            bit(dst, 7) | 1 << 6 | bit(b, 5) | op.map,
            u8::from(op.vex_wide) << 7 | (!src1 & 15) << 3 | u8::from(op.whole) << 2 | op.prefix,
        ]);
    }

    fn evex(&mut self, op: Opcode, dst: u8, src1: u8, operand: Operand, lanes: Lanes) {
        let (x, b) = match operand {
            Operand::Register(r) => (r >> 4 & 1, r >> 3 & 1),
            Operand::Memory { base, .. } => (0, base >> 3 & 1),
            Operand::Constant(_) | Operand::Constants(_) => (0, 0),
        };
        let bit = |v: u8, at: u8| (!v & 1) << at;
        let (mask, zero) = match lanes {
            Lanes::All => (0, 0),
            Lanes::Zeroed(k) => (k, 1u8),
            Lanes::Merged(k) => (k, 0),
        };
        let length = if op.whole { 2u8 } else { 0 };
        let broadcast = u8::from(matches!(operand, Operand::Constant(_)));
        self.bytes.extend([
            0x62,
            bit(dst >> 3, 7) | bit(x, 6) | bit(b, 5) | bit(dst >> 4, 4) | op.map,
            u8::from(op.wide) << 7 | (!src1 & 15) << 3 | 4 | op.prefix,
            zero << 7 | length << 5 | broadcast << 4 | bit(src1 >> 4, 3) | mask,
        ]);
    }

    /// The bytes that say what the last operand is.
    fn operand(&mut self, dst: u8, operand: Operand, immediate: bool) {
        let reg = (dst & 7) << 3;
        match operand {
            Operand::Register(r) => self.bytes.push(0xc0 | reg | r & 7),
            Operand::Memory { base, scale, displacement } => {
                // Without a displacement an 8-bit one of zero, which every base allows.
                let mode = if displacement == 0 { 0x40 } else { 0x80 };
                let index = match scale {
                    0 => 4 << 3,
                    s => (s.trailing_zeros() as u8) << 6 | RAX << 3,
                };
                self.bytes.extend([mode | reg | 4, index | base & 7]);
                match displacement {
                    0 => self.bytes.push(0),
                    d => self.bytes.extend(d.to_le_bytes()),
                }
            }
            Operand::Constant(at) | Operand::Constants(at) => {
                self.bytes.push(reg | 5);
                let end = self.bytes.len() + 4 + usize::from(immediate);
                self.constants.push((self.bytes.len(), end, at));
                self.bytes.extend([0; 4]);
            }
        }
    }

    /// An instruction on mask registers.
    fn mask_instruction(&mut self, prefix_and_length: u8, code: u8, dst: u8, src1: u8, rm: u8) {
        let b = (!(rm >> 3) & 1) << 5;
        self.bytes.extend([0xc4, 0xc0 | b | 1, (!src1 & 15) << 3 | prefix_and_length, code, 0xc0 | dst << 3 | rm & 7]);
    }

    pub(super) fn mask(&mut self, op: MaskOp, dst: u8, src1: u8, src2: u8) {
        self.mask_instruction(4, op as u8, dst, src1, src2);
    }

    pub(super) fn mask_not(&mut self, dst: u8, src: u8) {
        self.mask_instruction(0, 0x44, dst, 0, src);
    }

    /// The low eight bits of `low`, then those of `high`.
    pub(super) fn mask_join(&mut self, dst: u8, high: u8, low: u8) {
        self.mask_instruction(5, 0x4b, dst, high, low);
    }

    pub(super) fn mask_from_general(&mut self, dst: u8, general: u8) {
        self.mask_instruction(0, 0x92, dst, 0, general);
    }

    /// Place of consecutive values in the constant pool; of the first one, single-precision instructions read four bytes.
    pub(super) fn constants(&mut self, values: &[u64]) -> usize {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        if let Some(at) = self.pool.windows(bytes.len()).step_by(8).position(|w| w == bytes) {
            return at * 8;
        }
        self.pool.extend(bytes);
        self.pool.len() - 8 * values.len()
    }

    pub(super) fn push(&mut self, r: u8) {
        if r >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x50 | r & 7);
    }

    pub(super) fn pop(&mut self, r: u8) {
        if r >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x58 | r & 7);
    }

    /// `dst = [rdi + 8 · index]`
    pub(super) fn argument(&mut self, dst: u8, index: usize) {
        self.bytes.extend([0x48 | dst >> 3 << 2, 0x8b, 0x80 | (dst & 7) << 3 | RDI]);
        self.bytes.extend((index as i32 * 8).to_le_bytes());
    }

    /// `[rdi + 8 · index] += r8`
    pub(super) fn add_to_argument(&mut self, index: usize) {
        self.bytes.extend([0x4c, 0x01, 0x87]);
        self.bytes.extend((index as i32 * 8).to_le_bytes());
    }

    /// Counts `[rdi + 8 · index]` down; [`When::NotEqual`] holds as long as it is not zero.
    pub(super) fn count_argument(&mut self, index: usize) {
        self.bytes.extend([0x48, 0xff, 0x8f]);
        self.bytes.extend((index as i32 * 8).to_le_bytes());
    }

    /// `dst = base + rax + displacement`
    pub(super) fn position(&mut self, dst: u8, base: u8, displacement: i32) {
        let rex = 0x48 | dst >> 3 << 2 | base >> 3;
        self.bytes.extend([rex, 0x8d, 0x80 | (dst & 7) << 3 | 4, RAX << 3 | base & 7]);
        self.bytes.extend(displacement.to_le_bytes());
    }

    /// Asks for the line at `base + rax · scale + displacement`: to be read, into the second-level cache, or to be written.
    pub(super) fn prefetch(&mut self, write: bool, base: u8, scale: u8, displacement: i32) {
        if base >= 8 {
            self.bytes.push(0x41);
        }
        let (code, digit) = if write { (0x0d, 1 << 3) } else { (0x18, 2 << 3) };
        self.bytes.extend([0x0f, code, 0x84 | digit, (scale.trailing_zeros() as u8) << 6 | RAX << 3 | base & 7]);
        self.bytes.extend(displacement.to_le_bytes());
    }

    pub(super) fn zero_rax(&mut self) {
        self.bytes.extend([0x31, 0xc0]);
    }

    pub(super) fn add_rax(&mut self, n: i32) {
        self.bytes.extend([0x48, 0x05]);
        self.bytes.extend(n.to_le_bytes());
    }

    /// `rcx = rsi & -granule`
    pub(super) fn whole_part(&mut self, granule: i32) {
        self.bytes.extend([0x48, 0x89, 0xf1, 0x48, 0x81, 0xe1]);
        self.bytes.extend((-granule).to_le_bytes());
    }

    /// Compares rax with a register.
    pub(super) fn compare_rax(&mut self, with: u8) {
        self.bytes.extend([0x48, 0x39, 0xc0 | (with & 7) << 3]);
    }

    /// `rdx = min(rax + n, rcx)`
    pub(super) fn next_stop(&mut self, n: i32) {
        // lea rdx, [rax + n]; cmp rdx, rcx; cmova rdx, rcx
        self.bytes.extend([0x48, 0x8d, 0x90]);
        self.bytes.extend(n.to_le_bytes());
        self.bytes.extend([0x48, 0x39, 0xca, 0x48, 0x0f, 0x47, 0xd1]);
    }

    pub(super) fn test_rcx(&mut self) {
        self.bytes.extend([0x48, 0x85, 0xc9]);
    }

    /// Mask register 1 = the first `min(16, rsi - rax)` lanes. Overwrites rcx and r8.
    pub(super) fn tail_mask(&mut self) {
        // mov rcx, rsi; sub rcx, rax; cmp rcx, 16
        self.bytes.extend([0x48, 0x89, 0xf1, 0x48, 0x29, 0xc1, 0x48, 0x83, 0xf9, 16]);
        // jb +5; mov ecx, 16
        self.bytes.extend([0x72, 5, 0xb9, 16, 0, 0, 0]);
        // mov r8d, 1; shl r8d, cl; dec r8d
        self.bytes.extend([0x41, 0xb8, 1, 0, 0, 0, 0x41, 0xd3, 0xe0, 0x41, 0xff, 0xc8]);
        self.mask_from_general(1, R8);
    }

    /// Mask register 1 = the first lane. Overwrites r8.
    pub(super) fn first_lane_mask(&mut self) {
        // mov r8d, 1
        self.bytes.extend([0x41, 0xb8, 1, 0, 0, 0]);
        self.mask_from_general(1, R8);
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.bytes.len());
    }

    pub(super) fn jump_if(&mut self, when: When, to: Label) {
        self.bytes.extend([0x0f, when as u8]);
        self.jumps.push((self.bytes.len(), to));
        self.bytes.extend([0; 4]);
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.bytes.push(0xe9);
        self.jumps.push((self.bytes.len(), to));
        self.bytes.extend([0; 4]);
    }

    pub(super) fn ret(&mut self) {
        // Leave the vector unit clean for code of the older encoding.
        self.bytes.extend([0xc5, 0xf8, 0x77, 0xc3]);
    }

    /// The finished code, constants after it. None if a label was never bound.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let to = self.labels[label.0]?;
            let distance = to as i32 - (at as i32 + 4);
            self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(64), 0xcc);
        let pool = self.bytes.len();
        for (at, end, place) in std::mem::take(&mut self.constants) {
            let distance = (pool + place) as i32 - end as i32;
            self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.bytes.extend(&self.pool);
        self.bytes.resize(self.bytes.len().next_multiple_of(64), 0);
        Some(self.bytes)
    }
}
