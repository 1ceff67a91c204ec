// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An instruction as far as a device sees it: one access to memory, what is done with the value, and where it goes.
//!
//! The hardware has already reported the address of the memory operand. An operation has addresses only for string instructions,
//! whose other operand may be anywhere.

/// A general register, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpr {
    /// Its number (APM vol. 3, 1.8.2).
    pub number: u8,
    /// 1, 2, 4 or 8 bytes.
    pub size: u8,
    /// AH, CH, DH, BH: the second byte.
    pub high: bool,
}

/// What is combined with the value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Register(Gpr),
    /// A constant, extended to 64 bits.
    Immediate(u64),
}

/// Two operands give one result and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// ADD.
    Add,
    /// ADC.
    Adc,
    /// SUB and CMP.
    Sub,
    /// SBB.
    Sbb,
    /// AND and TEST.
    And,
    /// OR.
    Or,
    /// XOR.
    Xor,
}

/// One operand gives one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// INC.
    Inc,
    /// DEC.
    Dec,
    /// NEG.
    Neg,
    /// NOT, which leaves the flags alone.
    Not,
}

/// What BT and its relatives do with the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bit {
    /// BT: nothing.
    Test,
    /// BTS.
    Set,
    /// BTR.
    Reset,
    /// BTC.
    Complement,
}

/// What an instruction does with its memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MOV from memory, MOVZX; MOVSX and MOVSXD extend the sign.
    Load {
        /// Where it goes.
        to: Gpr,
        /// Whether the sign is extended.
        signed: bool,
    },
    /// MOV to memory, MOVNTI.
    Store(Source),
    /// An operation whose result goes to memory.
    ToMemory(Alu, Source),
    /// An operation whose result goes to a register.
    ToRegister(Alu, Gpr),
    /// CMP and TEST: flags only. `memory_first` is how CMP has its operands.
    Compare {
        /// SUB or AND.
        alu: Alu,
        /// The other operand.
        with: Source,
        /// Whether the memory operand is the first.
        memory_first: bool,
    },
    /// INC, DEC, NEG, NOT.
    Unary(Unary),
    /// XCHG.
    Exchange(Gpr),
    /// XADD.
    ExchangeAdd(Gpr),
    /// CMPXCHG.
    CompareExchange(Gpr),
    /// BT, BTS, BTR, BTC.
    Bit(Bit, Source),
    /// MOVS.
    StringMove(Strings),
    /// STOS.
    StringStore(Strings),
    /// LODS.
    StringLoad(Strings),
    /// CMPS.
    StringCompare(Strings),
    /// SCAS.
    StringScan(Strings),
}

/// Whether a string instruction is repeated, as long as its count lasts (APM vol. 3, 1.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Not at all.
    Once,
    /// F3. Comparisons end it when two elements differ (REPE).
    Equal,
    /// F2. Comparisons end it when two elements are equal (REPNE).
    Different,
}

/// How a string instruction goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings {
    /// Whether it is repeated.
    pub repeat: Repeat,
    /// 2, 4 or 8: the size of SI, DI and CX.
    pub address_size: u8,
    /// The segment of the source: 0 to 5 for ES, CS, SS, DS, FS, GS.
    pub segment: u8,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: Kind,
    /// Bytes of the memory operand: 1, 2, 4 or 8.
    pub size: u8,
    /// Bytes of the instruction.
    pub length: u8,
}

impl Operation {
    /// Says whether memory is written and not read.
    pub const fn only_writes(&self) -> bool {
        matches!(self.kind, Kind::Store(_) | Kind::StringStore(_))
    }

    /// Says whether memory is read and not written; of a MOVS, either side may be meant.
    pub const fn only_reads(&self) -> bool {
        matches!(
            self.kind,
            Kind::Load { .. }
                | Kind::ToRegister(..)
                | Kind::Compare { .. }
                | Kind::Bit(Bit::Test, _)
                | Kind::StringLoad(_)
                | Kind::StringCompare(_)
                | Kind::StringScan(_)
        )
    }
}
