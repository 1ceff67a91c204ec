// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Light handlers of the built image for PCs return with the guest's registers as they were, but for RAX, RCX and RDI, which the run
//! loop has stored. Compiled code keeps those that the C ABI says; what it changes of the others is found by following it. The
//! functions that store more (`keep.rs` of the hypervisor) are straight lines, in which each store and load is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::image_x86::{Program, target};

/// A set of general registers, a bit for each, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set(u16);

/// RAX, RCX and RDI: the run loop stores them.
const STORED: Set = Set(1 << 0 | 1 << 1 | 1 << 7);
/// RBX, RSP, RBP and R12 to R15: compiled code preserves them.
const PRESERVED: Set = Set(1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12);
/// Where in the frame each register is.
const SLOTS: [Option<u64>; 16] = [
    None,
    Some(56),
    Some(48),
    Some(64),
    None,
    Some(72),
    Some(40),
    Some(32),
    Some(24),
    Some(16),
    Some(8),
    Some(0),
    Some(80),
    Some(88),
    Some(96),
    Some(104),
];

impl Set {
    fn of(register: Register) -> Self {
        let full = register.full_register();
        if full.is_gpr64() { Set(1 << full.number()) } else { Set(0) }
    }

    fn with(self, other: Self) -> Self {
        Set(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Set(self.0 & !other.0)
    }

    fn names(self) -> String {
        let registers = Register::RAX as u32..=Register::R15 as u32;
        let registers = registers.filter_map(|number| Register::try_from(number as usize).ok());
        let named = registers.filter(|register| Set::of(*register).0 & self.0 != 0);
        named.map(|register| format!("{register:?}")).collect::<Vec<_>>().join(", ")
    }
}

/// Looks at every light handler.
///
/// # Errors
/// Names the first that changes what it must not.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let handlers = program.handlers()?;
    let functions = all(&program, &handlers)?;
    judge(&functions, &handlers).map_err(|(function, what)| {
        let name = program.name(function);
        format!("{:#} {what}", rustc_demangle::demangle(name))
    })
}

/// What the light tier reaches: each function, and what it calls and jumps to.
fn all(program: &Program, handlers: &BTreeSet<u64>) -> Result<BTreeMap<u64, Function>, String> {
    let mut functions = BTreeMap::new();
    let mut todo: Vec<u64> = handlers.iter().copied().collect();
    while let Some(start) = todo.pop() {
        if functions.contains_key(&start) {
            continue;
        }
        let body = program.body(start);
        let mut function = Function { body, calls: Vec::new(), jumps: Vec::new() };
        for instruction in &function.body {
            let place = target(instruction).or_else(|| {
                let indirect = instruction.flow_control() == FlowControl::IndirectCall;
                indirect.then(|| program.linked(start, instruction)).flatten()
            });
            let Some(other) = place.and_then(|place| program.containing(place)) else { continue };
            if other == start {
                continue;
            }
            let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            if is_call {
                function.calls.push(other)
            } else {
                function.jumps.push(other)
            }
            todo.push(other);
        }
        functions.insert(start, function);
    }
    Ok(functions)
}

/// A function.
struct Function {
    body: Vec<Instruction>,
    calls: Vec<u64>,
    jumps: Vec<u64>,
}

/// What a straight line does to the registers of its caller.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    /// It stores them before its one call, and loads them behind it.
    kept: Set,
    /// It uses the frame of the exit, which it takes to be above its return address.
    in_frame: bool,
}

/// Judges all functions: the first that is not as it must be, and what it does.
fn judge(functions: &BTreeMap<u64, Function>, handlers: &BTreeSet<u64>) -> Result<(), (u64, String)> {
    let mut lines = BTreeMap::new();
    for (&start, function) in functions {
        if let Some(line) = line(&function.body).map_err(|what| (start, what))? {
            lines.insert(start, line);
        }
    }
    for (&start, function) in functions {
        let is_in_frame = |other: &&u64| lines.get(other).is_some_and(|line| line.in_frame);
        if function.calls.iter().any(|other| is_in_frame(&other)) {
            return Err((start, "calls what only the run loop may call".to_owned()));
        }
        if !handlers.contains(&start) && function.jumps.iter().any(|other| is_in_frame(&other)) {
            return Err((start, "jumps to what only a light handler may jump to".to_owned()));
        }
    }
    let changed = changes(functions, &lines);
    for handler in handlers {
        let excess = changed[handler].without(STORED);
        if excess != Set::default() {
            return Err((*handler, format!("returns with {} changed", excess.names())));
        }
    }
    Ok(())
}

/// The registers that each function returns with changed.
fn changes(functions: &BTreeMap<u64, Function>, lines: &BTreeMap<u64, Line>) -> BTreeMap<u64, Set> {
    let mut factory = InstructionInfoFactory::new();
    let mut of_body = |function: &Function| {
        let written = function.body.iter().map(|instruction| written(&mut factory, instruction));
        written.fold(Set::default(), Set::with)
    };
    let own: BTreeMap<u64, Set> =
        functions.iter().map(|(&start, function)| (start, of_body(function))).collect();
    let mut changed: BTreeMap<u64, Set> = functions.keys().map(|&start| (start, Set::default())).collect();
    loop {
        let before = changed.clone();
        for (&start, function) in functions {
            let others = function.calls.iter().chain(&function.jumps).map(|other| before[other]);
            let all = others.fold(own[&start], Set::with);
            let kept = lines.get(&start).map_or(PRESERVED, |line| line.kept);
            changed.insert(start, all.without(kept));
        }
        if changed == before {
            return changed;
        }
    }
}

/// The registers that an instruction writes.
fn written(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Set {
    let used = factory.info(instruction).used_registers().iter();
    let written = used.filter(|used| {
        matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    });
    written
        .map(|used| Set::of(used.register()))
        .fold(Set::default(), Set::with)
        .without(Set::of(Register::RSP))
}

/// What a function keeps that is a straight line with one call, and stores other registers than compiled code does. `None` if it is
/// compiled.
fn line(body: &[Instruction]) -> Result<Option<Line>, String> {
    let first = body.first().filter(|first| first.mnemonic() == Mnemonic::Push);
    let is_line = first.is_some_and(|first| {
        let register = Set::of(first.op0_register());
        register.without(PRESERVED).without(STORED) == register
    });
    if !is_line {
        return Ok(None);
    }
    let mut line = Line::default();
    let (mut stack, mut stored, mut loaded, mut is_behind) =
        (Vec::new(), Set::default(), Set::default(), false);
    for instruction in body {
        let at = instruction.ip();
        let [to, from] = [0, 1].map(|index| Set::of(instruction.op_register(index)));
        match (instruction.mnemonic(), instruction.flow_control()) {
            (Mnemonic::Push, _) if !is_behind => {
                stored = stored.with(to);
                stack.push(to);
            }
            (Mnemonic::Pop, _) if is_behind && stack.pop() == Some(to) => loaded = loaded.with(to),
            (Mnemonic::Mov, _)
                if !is_behind && is_own_slot(instruction, instruction.op1_register(), &stack) =>
            {
                stored = stored.with(from);
                line.in_frame = true;
            }
            (Mnemonic::Mov, _)
                if is_behind && is_own_slot(instruction, instruction.op0_register(), &stack) =>
            {
                loaded = loaded.with(to);
                line.in_frame = true;
            }
            (_, FlowControl::Call) if !is_behind => is_behind = true,
            (Mnemonic::Ret, _) if is_behind && stack.is_empty() => break,
            (Mnemonic::Nop | Mnemonic::Int3, _) => {}
            _ => return Err(format!("does what nobody understands at {at:#x}")),
        }
    }
    if stored != loaded {
        return Err(format!("stores {} and loads {}", stored.names(), loaded.names()));
    }
    line.kept = stored;
    Ok(Some(line))
}

/// Whether an instruction's memory is a register's own place in the frame, which is above the return address and what was pushed.
fn is_own_slot(instruction: &Instruction, register: Register, pushed: &[Set]) -> bool {
    let is_memory = (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
    let above = (pushed.len() as u64 + 1) * 8;
    is_memory
        && register.is_gpr64()
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && SLOTS[register.number()].is_some_and(|slot| instruction.memory_displacement64() == above + slot)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// A handler at 0x1000 that is this code, and what is at 0x2000.
    fn judged(handler: &[u8], other: &[u8]) -> Result<(), String> {
        let decode =
            |code: &[u8], at| Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter().collect();
        let functions = [(0x1000, handler), (0x2000, other)].map(|(start, code)| {
            let body: Vec<Instruction> = decode(code, start);
            let to = |wanted: FlowControl| {
                let found = body.iter().filter(move |instruction| instruction.flow_control() == wanted);
                found.filter_map(target).filter(|place| *place == 0x2000).collect::<Vec<u64>>()
            };
            let (calls, jumps) = (to(FlowControl::Call), to(FlowControl::UnconditionalBranch));
            (start, Function { body, calls, jumps })
        });
        judge(&functions.into(), &[0x1000].into()).map_err(|(_, what)| what)
    }

    /// `push rsi; mov [rsp + 64], rdx; call 0x2000; pop rsi; mov rdx, [rsp + 56]; ret`.
    const KEEPS: &[u8] =
        &[0x56, 0x48, 0x89, 0x54, 0x24, 64, 0xe8, 0xf5, 0x0f, 0, 0, 0x5e, 0x48, 0x8b, 0x54, 0x24, 56, 0xc3];
    /// `mov edx, [rsi]; mov esi, edx; ret`.
    const CHANGES: &[u8] = &[0x8b, 0x16, 0x89, 0xd6, 0xc3];

    #[test]
    fn what_is_kept_may_be_changed() {
        assert_eq!(judged(KEEPS, CHANGES), Ok(()));
        assert_eq!(judged(&[0x89, 0xc1, 0x89, 0xcf, 0xc3], &[]), Ok(()), "RCX and RDI are stored");
        assert_eq!(judged(&[0x53, 0x89, 0xc3, 0x5b, 0xc3], &[]), Ok(()), "compiled code preserves RBX");
    }

    #[test]
    fn what_is_not_kept_is_found() {
        let found = judged(CHANGES, &[]).unwrap_err();
        assert_eq!(found, "returns with RDX, RSI changed");
        // `mov r8d, eax; ret`, behind what keeps RSI and RDX.
        assert_eq!(judged(KEEPS, &[0x41, 0x89, 0xc0, 0xc3]).unwrap_err(), "returns with R8 changed");
        // `jmp 0x2000`.
        let jump = [0xe9, 0xfb, 0x0f, 0, 0];
        assert_eq!(judged(&jump, CHANGES).unwrap_err(), "returns with RDX, RSI changed");
        // `call 0x2000; ret`: the frame is somewhere else then.
        let keeps = [KEEPS[..6].to_vec(), vec![0x90; 5], KEEPS[11..].to_vec()].concat();
        let call = [0xe8, 0xfb, 0x0f, 0, 0, 0xc3];
        assert!(judged(&call, &keeps).is_err());
    }

    #[test]
    fn lines_that_lose_a_register_are_found() {
        let broken = |at: usize, byte: u8| {
            let mut code = KEEPS.to_vec();
            code[at] = byte;
            judged(&code, CHANGES).unwrap_err()
        };
        assert!(broken(5, 72).contains("nobody understands"), "another's slot");
        assert!(broken(16, 48).contains("nobody understands"), "another's slot");
        // Without the load.
        let code = [&KEEPS[..12], &KEEPS[17..]].concat();
        assert!(judged(&code, CHANGES).unwrap_err().contains("stores RDX, RSI and loads RSI"));
    }

    #[test]
    fn only_a_handler_jumps_to_what_uses_the_frame() {
        let line =
            line(&Decoder::with_ip(64, KEEPS, 0x1000, DecoderOptions::NONE).into_iter().collect::<Vec<_>>());
        assert!(line.unwrap().unwrap().in_frame);
        let jump = Decoder::with_ip(64, &[0xe9, 0xfb, 0x0f, 0, 0], 0x3000, DecoderOptions::NONE).decode();
        let empty = || Function { body: Vec::new(), calls: Vec::new(), jumps: Vec::new() };
        let keeps = Decoder::with_ip(64, KEEPS, 0x4000, DecoderOptions::NONE).into_iter().collect();
        let functions = [
            (0x1000, Function { jumps: vec![0x3000], ..empty() }),
            (0x3000, Function { body: vec![jump], jumps: vec![0x4000], calls: Vec::new() }),
            (0x4000, Function { body: keeps, calls: vec![], jumps: vec![] }),
        ];
        let (function, what) = judge(&functions.into(), &[0x1000].into()).unwrap_err();
        assert_eq!((function, what.as_str()), (0x3000, "jumps to what only a light handler may jump to"));
    }
}
