// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarded run loops of the built image for PCs, and the guarded ways into services: between the exit and the remedy there is
//! nothing that the training of a guest, or of a service, could steer, what the loop is for is done before the entry, and the plain
//! ones have nothing of it.

use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::image_x86::Program;

/// The loops of each guard, in the order of the table of their entries.
const NAMES: [&str; 4] = ["known", "named", "known_timed", "named_timed"];
/// Combinations of guards, none among them.
const GUARDS: u64 = 16;
/// The table of entries.
const TABLE: &str = "turnstile_loops";
/// The bits of a combination.
const BARRIER: u64 = 1;
const FILL: u64 = 2;
const CLEAR: u64 = 4;
const SWITCH: u64 = 8;
/// The table of the ways into services.
const WAYS: &str = "turnstile_service_ways";
/// More bytes than lie between the beginning of a loop and the call of its handler, or a way and its return.
const LENGTH: u64 = 1024;

/// A write of an MSR: its number, and what is written: a constant, or a word at this offset from RSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Constant(u64, u64),
    FromFrame(u64, u64),
}

/// PRED_CMD gets IBPB; SPEC_CTRL the hypervisor's, and the guest's.
const IBPB: Written = Written::Constant(0x49, 1);
const HOST: Written = Written::FromFrame(0x48, 156);
const GUEST: Written = Written::FromFrame(0x48, 152);
/// The same of a way into a service, on the stack: in the service it is the hypervisor's.
const HOST_OF_SERVICE: Written = Written::FromFrame(0x48, 16);

/// What is entered, and how its code ends.
#[derive(Clone, Copy)]
struct Kind {
    /// What SPEC_CTRL gets behind the exit.
    host: Written,
    /// What it gets before the entry, if anything.
    guest: Option<Written>,
    /// The end: the call of a handler, or the return.
    end: FlowControl,
}

const LOOP: Kind = Kind { host: HOST, guest: Some(GUEST), end: FlowControl::IndirectCall };
const SERVICE: Kind = Kind { host: HOST_OF_SERVICE, guest: None, end: FlowControl::Return };

/// Looks at every loop and every way.
///
/// # Errors
/// Names the first that is not as it must be.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let symbol = |name: &str| program.symbol(name).ok_or_else(|| format!("the image has no {name}"));
    let entries = program.bytes(symbol(TABLE)?, GUARDS * NAMES.len() as u64 * 8).as_chunks::<8>().0;
    if entries.len() as u64 != GUARDS * NAMES.len() as u64 {
        return Err(format!("{TABLE} is too short"));
    }
    let mut entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
    for guard in 0..GUARDS {
        for name in NAMES {
            let name = if guard == 0 { name.to_owned() } else { format!("{name}_{guard}") };
            if entries.next() != Some(symbol(&format!("turnstile_enter_{name}"))?) {
                return Err(format!("{TABLE} has another loop in the place of {name}"));
            }
            let start = symbol(&format!("{name}_resume"))?;
            judge(&decode(program.bytes(start, LENGTH), start, LOOP.end), guard, LOOP)
                .map_err(|what| format!("{name}: {what}"))?;
        }
    }
    let ways = program.bytes(symbol(WAYS)?, GUARDS * 8).as_chunks::<8>().0;
    if ways.len() as u64 != GUARDS {
        return Err(format!("{WAYS} is too short"));
    }
    for (guard, way) in (0..).zip(ways) {
        let (name, start) = (format!("service_way_{guard}"), u64::from_le_bytes(*way));
        if start != symbol(&name)? {
            return Err(format!("{WAYS} has another way in the place of {name}"));
        }
        judge(&decode(program.bytes(start, LENGTH), start, SERVICE.end), guard, SERVICE)
            .map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(())
}

/// The instructions of a loop up to the call of its handler, or of a way up to its return.
fn decode(bytes: &[u8], start: u64, end: FlowControl) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    for instruction in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
        let ends = instruction.flow_control() == end;
        instructions.push(instruction);
        if ends {
            break;
        }
    }
    instructions
}

/// What a stretch of code does to registers that matter here.
#[derive(Default)]
struct Stretch {
    written: Vec<Written>,
    calls: usize,
}

impl Stretch {
    /// Reads it; `before` judges each instruction with what has been written so far.
    fn read(
        code: &[Instruction],
        mut before: impl FnMut(&Instruction, &[Written]) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut stretch = Stretch::default();
        let (mut ecx, mut eax) = (None, None);
        for instruction in code {
            before(instruction, &stretch.written)?;
            let constant = (instruction.op_count() == 2 && instruction.op1_kind() == OpKind::Immediate32)
                .then(|| Written::Constant(0, instruction.immediate(1)));
            let loaded = is_from_frame(instruction)
                .then(|| Written::FromFrame(0, instruction.memory_displacement64()));
            match (instruction.mnemonic(), instruction.op0_register()) {
                (Mnemonic::Mov, Register::ECX) => ecx = constant,
                (Mnemonic::Mov, Register::EAX) => eax = constant.or(loaded),
                (Mnemonic::Wrmsr, _) => stretch.written.push(match (ecx, eax) {
                    (Some(Written::Constant(_, msr)), Some(Written::Constant(_, value))) => {
                        Written::Constant(msr, value)
                    }
                    (Some(Written::Constant(_, msr)), Some(Written::FromFrame(_, offset))) => {
                        Written::FromFrame(msr, offset)
                    }
                    _ => return Err(format!("nobody knows what is written at {:#x}", instruction.ip())),
                }),
                (Mnemonic::Call, _) => stretch.calls += 1,
                _ => {}
            }
        }
        Ok(stretch)
    }
}

/// Whether its operand in memory is in the frame, where RSP points.
fn is_from_frame(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None
}

fn has(guard: u64, bit: u64) -> bool {
    guard & bit != 0
}

/// Looks at one loop or way, which is for these guards.
fn judge(code: &[Instruction], guard: u64, kind: Kind) -> Result<(), String> {
    let place = |mnemonic| code.iter().position(|instruction| instruction.mnemonic() == mnemonic);
    let entry = place(Mnemonic::Vmrun).ok_or("it enters no guest")?;
    code.last()
        .filter(|last| last.flow_control() == kind.end)
        .ok_or("it calls no handler, or does not return")?;
    let (before, behind) = code.split_at(entry);
    enters(before, guard, kind)?;
    let fence = place(Mnemonic::Lfence);
    let (guarded, rest) = match fence {
        Some(fence) if fence > entry => behind.split_at(fence - entry),
        None => (&behind[..0], behind),
        _ => return Err("LFENCE comes before the entry".to_owned()),
    };
    if fence.is_some() != has(guard, BARRIER | FILL | SWITCH) {
        return Err("LFENCE is missing, or needless".to_owned());
    }
    let found = Stretch::read(guarded, |instruction, written| may_come_first(instruction, written, guard))?;
    let mut expected = Vec::new();
    expected.extend(has(guard, SWITCH).then_some(kind.host));
    expected.extend(has(guard, BARRIER).then_some(IBPB));
    if found.written != expected {
        return Err(format!("behind the exit it writes {:?}, not {expected:?}", found.written));
    }
    if (found.calls > 0) != has(guard, FILL) {
        return Err("the return stack is not filled, or needlessly".to_owned());
    }
    let late = Stretch::read(rest, |_, _| Ok(()))?;
    if !late.written.is_empty() || late.calls != usize::from(kind.end == FlowControl::IndirectCall) {
        return Err("there is more behind the guard than the call of the handler, or the return".to_owned());
    }
    Ok(())
}

/// The way into the guest or the service.
fn enters(before: &[Instruction], guard: u64, kind: Kind) -> Result<(), String> {
    let found = Stretch::read(before, |_, _| Ok(()))?;
    let expected: Vec<Written> = kind.guest.filter(|_| has(guard, SWITCH)).into_iter().collect();
    if found.written != expected {
        return Err(format!("before the entry it writes {:?}, not {expected:?}", found.written));
    }
    let clears = |instruction: &&Instruction| {
        instruction.mnemonic() == Mnemonic::Verw && instruction.op0_kind() == OpKind::Memory
    };
    let place = before.iter().rposition(|instruction| clears(&instruction));
    // With a selector in a register it is only what it is called.
    match (has(guard, CLEAR), place) {
        (true, Some(place)) if place + 1 == before.len() => Ok(()),
        (false, None) => Ok(()),
        _ => Err("VERW is not the last before the entry, or needless".to_owned()),
    }
}

/// Whether an instruction may come before the remedy is done.
fn may_come_first(instruction: &Instruction, written: &[Written], guard: u64) -> Result<(), String> {
    let at = instruction.ip();
    match instruction.flow_control() {
        FlowControl::Next => {}
        // VMRUN itself.
        _ if instruction.mnemonic() == Mnemonic::Vmrun => {}
        FlowControl::Call | FlowControl::ConditionalBranch
            if has(guard, BARRIER) && !written.contains(&IBPB) =>
        {
            return Err(format!("a branch at {at:#x} comes before the barrier"));
        }
        FlowControl::Call | FlowControl::ConditionalBranch | FlowControl::Interrupt => {}
        _ => return Err(format!("{:?} at {at:#x} can be steered", instruction.mnemonic())),
    }
    let touches = (0..instruction.op_count()).any(|index| instruction.op_kind(index) == OpKind::Memory);
    if touches && !is_from_frame(instruction) {
        return Err(format!("memory that is not the frame's at {at:#x}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VMRUN: &[u8] = &[0x0f, 0x01, 0xd8];
    const LFENCE: &[u8] = &[0x0f, 0xae, 0xe8];
    /// `mov ecx, 0x49; mov eax, 1; xor edx, edx; wrmsr`.
    const DROP: &[u8] = &[0xb9, 0x49, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x30];
    /// `mov ecx, 0x48; mov eax, [rsp + 152]; xor edx, edx; wrmsr`, and with 156.
    const LOAD_GUEST: &[u8] = &[0xb9, 0x48, 0, 0, 0, 0x8b, 0x84, 0x24, 152, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x30];
    const LOAD_HOST: &[u8] = &[0xb9, 0x48, 0, 0, 0, 0x8b, 0x84, 0x24, 156, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x30];
    /// `call` of what comes behind an `int3`.
    const CALL: &[u8] = &[0xe8, 1, 0, 0, 0, 0xcc];
    /// `verw word ptr [rip]`, and `verw ax`.
    const VERW: &[u8] = &[0x0f, 0x00, 0x2d, 0, 0, 0, 0];
    const VERW_AX: &[u8] = &[0x0f, 0x00, 0xe8];
    /// `call [rdx * 8 + 0x1000]`.
    const HANDLER: &[u8] = &[0xff, 0x14, 0xd5, 0, 0x10, 0, 0];
    /// `ret`; `mov rcx, [rsi]`; `jmp rax`.
    const RET: &[u8] = &[0xc3];
    const LOAD: &[u8] = &[0x48, 0x8b, 0x0e];
    const JUMP: &[u8] = &[0xff, 0xe0];

    fn judged(guard: u64, parts: &[&[u8]]) -> Result<(), String> {
        judge(&decode(&parts.concat(), 0x20_0000, LOOP.end), guard, LOOP)
    }

    #[test]
    fn ways_into_services_are_judged_as_well() {
        // `mov ecx, 0x48; mov eax, [rsp + 16]; xor edx, edx; wrmsr`; `mov rax, [rax + 112]`.
        const LOAD: &[u8] = &[0xb9, 0x48, 0, 0, 0, 0x8b, 0x44, 0x24, 16, 0x31, 0xd2, 0x0f, 0x30];
        const BLOCK: &[u8] = &[0x48, 0x8b, 0x40, 112];
        let judged =
            |guard, parts: &[&[u8]]| judge(&decode(&parts.concat(), 0x20_0000, SERVICE.end), guard, SERVICE);
        assert_eq!(judged(0, &[BLOCK, VMRUN, RET]), Ok(()));
        assert_eq!(judged(BARRIER, &[BLOCK, VMRUN, DROP, LFENCE, BLOCK, RET]), Ok(()));
        assert_eq!(judged(SWITCH | CLEAR, &[BLOCK, VERW, VMRUN, LOAD, LFENCE, BLOCK, RET]), Ok(()));
        assert!(judged(SWITCH, &[LOAD, VMRUN, LOAD, LFENCE, RET]).is_err(), "a service has the hypervisor's");
        assert!(judged(SWITCH, &[VMRUN, LOAD_HOST, LFENCE, RET]).is_err(), "from a place of the run loop's");
        assert!(judged(BARRIER, &[VMRUN, BLOCK, DROP, LFENCE, RET]).is_err(), "a load before the barrier");
        assert!(judged(BARRIER, &[VMRUN, DROP, LFENCE, CALL, RET]).is_err(), "more than the return");
        assert!(judged(0, &[VMRUN, HANDLER]).is_err());
    }

    #[test]
    fn good_loops_pass() {
        assert_eq!(judged(0, &[VMRUN, HANDLER]), Ok(()));
        assert_eq!(judged(BARRIER, &[VMRUN, DROP, LFENCE, HANDLER]), Ok(()));
        assert_eq!(judged(FILL, &[VMRUN, CALL, LFENCE, HANDLER]), Ok(()));
        assert_eq!(judged(CLEAR, &[VERW, VMRUN, HANDLER]), Ok(()));
        let all: [&[u8]; 8] = [LOAD_GUEST, VERW, VMRUN, LOAD_HOST, DROP, CALL, LFENCE, HANDLER];
        assert_eq!(judged(15, &all), Ok(()));
        assert_eq!(judged(BARRIER, &[VMRUN, DROP, LFENCE, LOAD, HANDLER]), Ok(()), "behind it all may come");
    }

    #[test]
    fn bad_loops_are_found() {
        let bad: [(u64, &[&[u8]], &str); 15] = [
            (0, &[HANDLER], "enters no guest"),
            (0, &[VMRUN, LFENCE], "calls no handler"),
            (0, &[VMRUN, LFENCE, HANDLER], "needless"),
            (0, &[VMRUN, DROP, HANDLER], "more behind the guard"),
            (BARRIER, &[VMRUN, DROP, HANDLER], "LFENCE"),
            (BARRIER, &[VMRUN, LFENCE, DROP, HANDLER], "writes []"),
            (BARRIER, &[VMRUN, LOAD_HOST, LFENCE, HANDLER], "writes"),
            (BARRIER, &[VMRUN, LOAD, DROP, LFENCE, HANDLER], "not the frame's"),
            (BARRIER, &[VMRUN, RET, DROP, LFENCE, HANDLER], "can be steered"),
            (BARRIER, &[VMRUN, JUMP, DROP, LFENCE, HANDLER], "can be steered"),
            (BARRIER | FILL, &[VMRUN, CALL, DROP, LFENCE, HANDLER], "before the barrier"),
            (FILL, &[VMRUN, LFENCE, HANDLER], "not filled"),
            (CLEAR, &[VERW_AX, VMRUN, HANDLER], "VERW"),
            (CLEAR, &[VERW, LOAD, VMRUN, HANDLER], "VERW"),
            (SWITCH, &[LOAD_HOST, VMRUN, LOAD_HOST, LFENCE, HANDLER], "before the entry"),
        ];
        for (guard, parts, expected) in bad {
            let found = judged(guard, parts).unwrap_err();
            assert!(found.contains(expected), "{guard}: {found}, not {expected}");
        }
    }
}
