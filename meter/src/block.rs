// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block of code as QEMU translates it: decoded once, then only pointed to.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::classify::{Access, Class, Classes, Effect};
use crate::isa::Isa;

/// One instruction of a block.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Its address.
    pub pc: u64,
    /// Its bytes as they are in memory.
    pub bytes: Box<[u8]>,
    /// Its classes.
    pub classes: Classes,
    /// The number of the access to a system register that it makes.
    pub access: Option<u32>,
    /// Its text, if it is wanted.
    pub text: Option<Box<str>>,
}

/// What is known of an instruction before it is decoded.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Its address.
    pub pc: u64,
    /// Its bytes as they are in memory.
    pub bytes: Vec<u8>,
    /// Its text, if it is wanted.
    pub text: Option<Box<str>>,
}

/// Instructions that QEMU executes in a row.
#[derive(Debug)]
pub struct Block {
    /// The address of the first.
    pub start: u64,
    /// The privilege it runs with: the exception level, or what is most like it. 0 outside the guest is that of a service.
    pub level: u8,
    /// Whether it may be the start of an exception handler.
    pub may_be_vector: bool,
    /// Whether its last instruction may return to the guest.
    pub returns: bool,
    /// The instructions.
    pub instructions: Box<[Instruction]>,
}

impl Block {
    /// How many instructions there are.
    pub fn len(&self) -> u32 {
        self.instructions.len() as u32
    }

    /// The index of the instruction at this address.
    pub fn index(&self, pc: u64) -> Option<u32> {
        self.instructions.binary_search_by_key(&pc, |instruction| instruction.pc).ok().map(|at| at as u32)
    }
}

type Key = (u64, u8, Vec<u8>);

/// Services are linked at zero, have no more code than this, and run at a multiple of it, wherever a hypervisor has them.
const SERVICE: u64 = 2 << 20;

/// All code that was seen outside the guest. It is never forgotten: QEMU translates the same code again and again,
/// and there is only so much of it.
#[derive(Debug)]
pub struct Code {
    isa: Isa,
    /// Where services copy bytes of guests.
    copy: Range<u64>,
    blocks: FxHashMap<Key, &'static Block>,
    accesses: Names<Access>,
}

impl Code {
    /// No code yet.
    pub fn new(isa: Isa) -> Self {
        Code { isa, copy: 0..0, blocks: FxHashMap::default(), accesses: Names::default() }
    }

    /// The same, and what services have in this range, as they are linked, copies bytes of guests.
    #[must_use]
    pub fn copying(self, copy: Range<u64>) -> Self {
        Code { copy, ..self }
    }

    /// The block of these instructions; decoded when it is new. Also says which of them may access a device.
    pub fn block(&mut self, level: u8, little: bool, raw: Vec<Raw>) -> (&'static Block, Vec<bool>) {
        let effects: Vec<Effect> = raw.iter().map(|raw| self.isa.classify(&raw.bytes, little)).collect();
        let watched = effects.iter().map(|effect| effect.may_be_device).collect();
        let start = raw.first().map_or(0, |raw| raw.pc);
        let bytes = raw.iter().flat_map(|raw| raw.bytes.iter().copied()).collect();
        let (isa, copy, accesses) = (self.isa, &self.copy, &mut self.accesses);
        let block = self.blocks.entry((start, level, bytes)).or_insert_with(|| {
            let entry = if isa == Isa::X86 { Class::Vmrun } else { Class::ExceptionReturns };
            let returns = effects.last().is_some_and(|last| last.classes.has(entry));
            let instructions = raw.into_iter().zip(effects).map(|(raw, effect)| Instruction {
                pc: raw.pc,
                bytes: raw.bytes.into_boxed_slice(),
                classes: effect
                    .classes
                    .with_if(level == 0 && copy.contains(&(raw.pc % SERVICE)), Class::Copy),
                access: effect.access.map(|access| accesses.number(access)),
                text: raw.text,
            });
            Box::leak(Box::new(Block {
                start,
                level,
                may_be_vector: isa.may_be_vector(start),
                returns,
                instructions: instructions.collect(),
            }))
        });
        (block, watched)
    }

    /// The access to a system register that has this number.
    pub fn access(&self, number: u32) -> Option<&Access> {
        self.accesses.get(number)
    }
}

/// Things by number, in the order in which they were first seen.
#[derive(Debug)]
pub struct Names<T> {
    numbers: FxHashMap<T, u32>,
    all: Vec<T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Names { numbers: FxHashMap::default(), all: Vec::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Names<T> {
    /// The number of a thing.
    pub fn number(&mut self, thing: T) -> u32 {
        if let Some(&number) = self.numbers.get(&thing) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }

    /// The thing that has this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.all.get(number as usize)
    }
}
