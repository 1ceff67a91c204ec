// SPDX-License-Identifier: Apache-2.0 OR MIT
//! x86 instructions by class. The decoder is iced-x86's; here is only what counts as what.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};

use super::{Class, Effect};

/// Says what an instruction of 64-bit mode does.
pub fn classify(bytes: &[u8]) -> Effect {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return Effect::default();
    }
    let mut effect = system(&instruction);
    let (load, store) = accesses(&instruction);
    let memory = Effect::memory(load, store);
    for class in memory.classes.iter() {
        effect = effect.and(class);
    }
    if load && store && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg) {
        effect = effect.and(Class::Atomics);
    }
    effect.may_be_device = memory.may_be_device;
    effect
}

/// What is not about memory.
fn system(instruction: &Instruction) -> Effect {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Vmrun => Effect::of(Class::Vmrun),
        M::Vmload => Effect::of(Class::Vmload),
        M::Vmsave => Effect::of(Class::Vmsave),
        M::Clgi => Effect::of(Class::Clgi),
        M::Stgi => Effect::of(Class::Stgi),
        M::Rdmsr => Effect::register(false, "MSR", true).and(Class::Rdmsr),
        M::Wrmsr | M::Wrmsrns => Effect::register(true, "MSR", true).and(Class::Wrmsr),
        M::Xgetbv => Effect::register(false, "XCR", true),
        M::Xsetbv => Effect::register(true, "XCR", true),
        M::In | M::Insb | M::Insw | M::Insd => Effect::of(Class::PortReads),
        M::Out | M::Outsb | M::Outsw | M::Outsd => Effect::of(Class::PortWrites),
        M::Cpuid => Effect::of(Class::Cpuid),
        M::Lfence | M::Sfence | M::Mfence => Effect::of(Class::Fences),
        M::Invlpg => Effect::of(Class::Invlpg),
        M::Invlpga => Effect::of(Class::Invlpga),
        M::Rdtsc | M::Rdtscp => Effect::of(Class::Rdtsc),
        M::Mov => control_register(instruction),
        M::Int | M::Int1 | M::Int3 | M::Syscall | M::Sysenter => Effect::of(Class::ExceptionEntries),
        M::Iret | M::Iretd | M::Iretq | M::Sysret | M::Sysretq | M::Sysexit | M::Sysexitq => {
            Effect::of(Class::ExceptionReturns)
        }
        _ => match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::Exception
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend => Effect::default(),
            _ => Effect::of(Class::Branches),
        },
    }
}

/// MOV to and from control and debug registers.
fn control_register(instruction: &Instruction) -> Effect {
    let operand = |index| match instruction.op_kind(index) {
        OpKind::Register => Some(instruction.op_register(index)).filter(|it| it.is_cr() || it.is_dr()),
        _ => None,
    };
    match (operand(0), operand(1)) {
        (Some(register), _) => Effect::register(true, format!("{register:?}"), true),
        (None, Some(register)) => Effect::register(false, format!("{register:?}"), true),
        (None, None) => Effect::default(),
    }
}

/// Whether memory is read and written. VMLOAD and its like use the VMCB, which is counted by their own class.
fn accesses(instruction: &Instruction) -> (bool, bool) {
    use Mnemonic as M;
    if matches!(instruction.mnemonic(), M::Vmrun | M::Vmload | M::Vmsave | M::Invlpg | M::Invlpga) {
        return (false, false);
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let mut used = (false, false);
    for memory in info.used_memory() {
        match memory.access() {
            OpAccess::Read | OpAccess::CondRead => used.0 = true,
            OpAccess::Write | OpAccess::CondWrite => used.1 = true,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => used = (true, true),
            OpAccess::None | OpAccess::NoMemAccess => {}
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_their_classes() {
        use Class::*;
        let none: &[Class] = &[];
        let cases: &[(&[u8], &str, &[Class])] = &[
            (&[0x0f, 0x01, 0xd8], "vmrun", &[Vmrun]),
            (&[0x0f, 0x01, 0xda], "vmload", &[Vmload]),
            (&[0x0f, 0x01, 0xdb], "vmsave", &[Vmsave]),
            (&[0x0f, 0x01, 0xdd], "clgi", &[Clgi]),
            (&[0x0f, 0x01, 0xdc], "stgi", &[Stgi]),
            (&[0x0f, 0x32], "rdmsr", &[RegisterReads, HardwareReads, Rdmsr]),
            (&[0x0f, 0x30], "wrmsr", &[RegisterWrites, HardwareWrites, Wrmsr]),
            (&[0x0f, 0x01, 0xd0], "xgetbv", &[RegisterReads, HardwareReads]),
            (&[0xec], "in al, dx", &[PortReads]),
            (&[0xe6, 0x80], "out 0x80, al", &[PortWrites]),
            (&[0x0f, 0xa2], "cpuid", &[Cpuid]),
            (&[0x0f, 0xae, 0xf0], "mfence", &[Fences]),
            (&[0x0f, 0xae, 0xe8], "lfence", &[Fences]),
            (&[0x0f, 0x01, 0x38], "invlpg [rax]", &[Invlpg]),
            (&[0x0f, 0x01, 0xdf], "invlpga", &[Invlpga]),
            (&[0x0f, 0x31], "rdtsc", &[Rdtsc]),
            (&[0x0f, 0x01, 0xf9], "rdtscp", &[Rdtsc]),
            (&[0x0f, 0x20, 0xd8], "mov rax, cr3", &[RegisterReads, HardwareReads]),
            (&[0x0f, 0x23, 0xf8], "mov dr7, rax", &[RegisterWrites, HardwareWrites]),
            (&[0x48, 0x8b, 0x03], "mov rax, [rbx]", &[Loads]),
            (&[0x48, 0x89, 0x03], "mov [rbx], rax", &[Stores]),
            (&[0x48, 0x01, 0x03], "add [rbx], rax", &[Loads, Stores]),
            (&[0xf0, 0x48, 0x01, 0x03], "lock add [rbx], rax", &[Loads, Stores, Atomics]),
            (&[0x48, 0x87, 0x03], "xchg [rbx], rax", &[Loads, Stores, Atomics]),
            (&[0x48, 0x93], "xchg rax, rbx", none),
            (&[0x50], "push rax", &[Stores]),
            (&[0x58], "pop rax", &[Loads]),
            (&[0x48, 0x8d, 0x03], "lea rax, [rbx]", none),
            (&[0xe8, 0, 0, 0, 0], "call", &[Stores, Branches]),
            (&[0xc3], "ret", &[Loads, Branches]),
            (&[0x74, 0x00], "je", &[Branches]),
            (&[0xff, 0xe0], "jmp rax", &[Branches]),
            (&[0x0f, 0x05], "syscall", &[ExceptionEntries]),
            (&[0x48, 0x0f, 0x07], "sysretq", &[ExceptionReturns]),
            (&[0x90], "nop", none),
            (&[0x48, 0x01, 0xd8], "add rax, rbx", none),
            (&[0xff, 0xff], "nothing", none),
        ];
        for &(bytes, what, expected) in cases {
            let classes: Vec<Class> = classify(bytes).classes.iter().collect();
            assert_eq!(classes, expected, "{what}");
        }
        let iret: Vec<Class> = classify(&[0x48, 0xcf]).classes.iter().collect();
        assert!(iret.contains(&ExceptionReturns));
    }

    #[test]
    fn registers_are_named() {
        let access = classify(&[0x0f, 0x20, 0xd8]).access.unwrap();
        assert_eq!((access.write, access.register.as_ref()), (false, "CR3"));
    }
}
