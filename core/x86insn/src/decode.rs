// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From bytes to operations.

use iced_x86::{Decoder, DecoderOptions, Instruction, MemorySize, Mnemonic, OpKind, Register};

use crate::MAX_LENGTH;
use crate::operation::{Alu, Bit, Gpr, Kind, Operation, Repeat, Source, Strings, Unary};

/// Decodes an instruction for code of 16, 32 or 64 bits. `None` if the bytes are no instruction that reaches a device, or
/// not all of one.
pub fn decode(bytes: &[u8], bitness: u32) -> Option<Operation> {
    let bytes = bytes.get(..MAX_LENGTH).unwrap_or(bytes);
    let mut decoder = Decoder::try_with_ip(bitness, bytes, 0, DecoderOptions::NONE).ok()?;
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return None;
    }
    let size = match instruction.memory_size() {
        MemorySize::UInt8 | MemorySize::Int8 => 1,
        MemorySize::UInt16 | MemorySize::Int16 => 2,
        MemorySize::UInt32 | MemorySize::Int32 => 4,
        MemorySize::UInt64 | MemorySize::Int64 => 8,
        _ => return None,
    };
    Some(Operation { kind: kind(&instruction)?, size, length: instruction.len() as u8 })
}

/// What the legacy prefixes of an instruction say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// The segment of the operand: the last one counts.
    pub segment: Option<u8>,
    /// Addresses have the other size.
    pub address_size: bool,
}

impl Prefixes {
    /// Reads those of an instruction of which `valid` bytes of `code` are there.
    pub fn of(code: u128, valid: usize) -> Self {
        let mut prefixes = Self::default();
        for byte in code.to_le_bytes().into_iter().take(valid) {
            match byte {
                0x26 => prefixes.segment = Some(0),
                0x2e => prefixes.segment = Some(1),
                0x36 => prefixes.segment = Some(2),
                0x3e => prefixes.segment = Some(3),
                0x64 => prefixes.segment = Some(4),
                0x65 => prefixes.segment = Some(5),
                0x67 => prefixes.address_size = true,
                // Operand size, LOCK, REPNE, REP.
                0x66 | 0xf0 | 0xf2 | 0xf3 => {}
                _ => break,
            }
        }
        prefixes
    }
}

fn kind(instruction: &Instruction) -> Option<Kind> {
    use Mnemonic as M;
    Some(match instruction.mnemonic() {
        M::Mov | M::Movnti => load_or_store(instruction)?,
        M::Movzx => Kind::Load { to: register(instruction, 0)?, signed: false },
        M::Movsx | M::Movsxd => Kind::Load { to: register(instruction, 0)?, signed: true },
        M::Add => arithmetic(instruction, Alu::Add)?,
        M::Adc => arithmetic(instruction, Alu::Adc)?,
        M::Sub => arithmetic(instruction, Alu::Sub)?,
        M::Sbb => arithmetic(instruction, Alu::Sbb)?,
        M::And => arithmetic(instruction, Alu::And)?,
        M::Or => arithmetic(instruction, Alu::Or)?,
        M::Xor => arithmetic(instruction, Alu::Xor)?,
        M::Cmp => compare(instruction, Alu::Sub)?,
        M::Test => compare(instruction, Alu::And)?,
        M::Inc => unary(instruction, Unary::Inc)?,
        M::Dec => unary(instruction, Unary::Dec)?,
        M::Neg => unary(instruction, Unary::Neg)?,
        M::Not => unary(instruction, Unary::Not)?,
        M::Xchg if is_memory(instruction, 0) => Kind::Exchange(register(instruction, 1)?),
        M::Xchg if is_memory(instruction, 1) => Kind::Exchange(register(instruction, 0)?),
        M::Xadd if is_memory(instruction, 0) => Kind::ExchangeAdd(register(instruction, 1)?),
        M::Cmpxchg if is_memory(instruction, 0) => Kind::CompareExchange(register(instruction, 1)?),
        M::Bt => bit(instruction, Bit::Test)?,
        M::Bts => bit(instruction, Bit::Set)?,
        M::Btr => bit(instruction, Bit::Reset)?,
        M::Btc => bit(instruction, Bit::Complement)?,
        M::Movsb | M::Movsw | M::Movsd | M::Movsq => Kind::StringMove(strings(instruction, 1)?),
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => Kind::StringStore(strings(instruction, 0)?),
        M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => Kind::StringLoad(strings(instruction, 1)?),
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => Kind::StringCompare(strings(instruction, 0)?),
        M::Scasb | M::Scasw | M::Scasd | M::Scasq => Kind::StringScan(strings(instruction, 1)?),
        _ => return None,
    })
}

fn is_memory(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
}

fn load_or_store(instruction: &Instruction) -> Option<Kind> {
    if is_memory(instruction, 0) {
        Some(Kind::Store(source(instruction, 1)?))
    } else if is_memory(instruction, 1) {
        Some(Kind::Load { to: register(instruction, 0)?, signed: false })
    } else {
        None
    }
}

fn arithmetic(instruction: &Instruction, alu: Alu) -> Option<Kind> {
    if is_memory(instruction, 0) {
        Some(Kind::ToMemory(alu, source(instruction, 1)?))
    } else if is_memory(instruction, 1) {
        Some(Kind::ToRegister(alu, register(instruction, 0)?))
    } else {
        None
    }
}

fn compare(instruction: &Instruction, alu: Alu) -> Option<Kind> {
    if is_memory(instruction, 0) {
        Some(Kind::Compare { alu, with: source(instruction, 1)?, memory_first: true })
    } else if is_memory(instruction, 1) {
        Some(Kind::Compare { alu, with: source(instruction, 0)?, memory_first: false })
    } else {
        None
    }
}

fn unary(instruction: &Instruction, unary: Unary) -> Option<Kind> {
    is_memory(instruction, 0).then_some(Kind::Unary(unary))
}

fn bit(instruction: &Instruction, bit: Bit) -> Option<Kind> {
    is_memory(instruction, 0).then_some(Kind::Bit(bit, source(instruction, 1)?))
}

/// MOVS, LODS and CMPS have an operand at SI, STOS and SCAS have none; the mnemonics MOVSD and CMPSD are SSE instructions, too.
fn strings(instruction: &Instruction, operand: u32) -> Option<Strings> {
    let address_size = match instruction.op_kind(operand) {
        OpKind::MemorySegSI | OpKind::MemoryESDI => 2,
        OpKind::MemorySegESI | OpKind::MemoryESEDI => 4,
        OpKind::MemorySegRSI | OpKind::MemoryESRDI => 8,
        _ => return None,
    };
    let segment = match instruction.memory_segment() {
        Register::ES => 0,
        Register::CS => 1,
        Register::SS => 2,
        Register::FS => 4,
        Register::GS => 5,
        _ => 3,
    };
    let repeat = if instruction.has_repne_prefix() {
        Repeat::Different
    } else if instruction.has_rep_prefix() {
        Repeat::Equal
    } else {
        Repeat::Once
    };
    Some(Strings { repeat, address_size, segment })
}

fn source(instruction: &Instruction, operand: u32) -> Option<Source> {
    match instruction.op_kind(operand) {
        OpKind::Register => Some(Source::Register(register(instruction, operand)?)),
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => Some(Source::Immediate(instruction.immediate(operand))),
        _ => None,
    }
}

/// Returns the general register that an operand is.
pub(crate) fn register(instruction: &Instruction, operand: u32) -> Option<Gpr> {
    if instruction.op_kind(operand) != OpKind::Register {
        return None;
    }
    let register = instruction.op_register(operand);
    let within = |first: Register| (register as u32).wrapping_sub(first as u32);
    // The crate's numbers are in this order: AL to BH, SPL to R15L; AX to R15W; and so on.
    let gpr = |number: u32, size: u8| Some(Gpr { number: number as u8, size, high: false });
    match register {
        Register::AH | Register::CH | Register::DH | Register::BH => {
            Some(Gpr { number: within(Register::AH) as u8, size: 1, high: true })
        }
        Register::AL | Register::CL | Register::DL | Register::BL => gpr(within(Register::AL), 1),
        _ if within(Register::SPL) < 12 => gpr(within(Register::SPL) + 4, 1),
        _ if within(Register::AX) < 16 => gpr(within(Register::AX), 2),
        _ if within(Register::EAX) < 16 => gpr(within(Register::EAX), 4),
        _ if within(Register::RAX) < 16 => gpr(within(Register::RAX), 8),
        _ => None,
    }
}
