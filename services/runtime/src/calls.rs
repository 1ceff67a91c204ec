// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the hypervisor.

use core::fmt;

#[cfg(target_os = "none")]
use turnstile_service::abi::{Answer, REGISTERS};
use turnstile_service::abi::{CHARACTERS, Call, REFUSED, Sent, member_device, port_count};

use crate::event::Characters;

/// Prints up to 16 characters on the console of the VM that is served. Returns how many the service has printed since the hypervisor
/// began, in all its lives.
pub fn print(characters: Characters) -> u64 {
    call(Call::Print, [characters.count, characters.words[0], characters.words[1]])
}

/// Sets the alarm to a time in nanoseconds, or off (`u64::MAX`). Returns the time now.
pub fn alarm(at: u64) -> u64 {
    call(Call::Alarm, [at, 0, 0])
}

/// Returns the time now in nanoseconds. The alarm stays as it is.
pub fn time() -> u64 {
    call(Call::Time, [0; 3])
}

/// Returns 64 bits that nobody can guess; `None` if the CPU's generator has none now.
pub fn random() -> Option<u64> {
    Some(call(Call::Random, [0; 3])).filter(|bits| *bits != REFUSED)
}

/// Passes up to 16 bytes on to the other side of a port. Those that find no room are not taken. Returns how the port is then.
pub fn send(port: u64, bytes: Characters) -> Sent {
    Sent::from_word(call(Call::Send, [port_count(port, bytes.count), bytes.words[0], bytes.words[1]]))
}

/// Returns eight characters of a port's name: which of its [`PORT_NAME_WORDS`](turnstile_service::abi::PORT_NAME_WORDS) words. `None` if
/// there is no such port.
pub fn port_name(port: u64, word: u64) -> Option<u64> {
    Some(call(Call::PortName, [port, word, 0])).filter(|word| *word != REFUSED)
}

/// The guest does not need these bytes of its memory, which are whole [blocks](turnstile_service::abi::BLOCK). False if they stay.
pub fn release(address: u64, length: u64) -> bool {
    call(Call::Release, [address, length, 0]) != REFUSED
}

/// Has what was [released](release) leave, and says whether it has left, or stays.
pub fn is_released() -> bool {
    matches!(call(Call::Release, [0; 3]), 0 | REFUSED)
}

/// The guest uses again what was [released](release) and has not left: it stays.
pub fn keep() {
    call(Call::Keep, [0; 3]);
}

/// A member's PCI function sends a message-signalled interrupt. False if nothing of the machine is at that address, or if the VM does
/// not run.
pub fn message(member: u64, address: u64, data: u32) -> bool {
    call(Call::Message, [address, data.into(), member]) != REFUSED
}

/// A member's PCI function decodes a BAR at these addresses from now on; with size zero nowhere. False if it cannot be there: then it is
/// nowhere.
pub fn decode(member: u64, bar: u8, address: u64, size: u64) -> bool {
    call(Call::Decode, [member_device(member, bar.into()), address, size]) != REFUSED
}

/// Writes to the hypervisor's log, under the service's name. A line ends with a newline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(CHARACTERS as usize) {
            let word = |from: usize| {
                let bytes = piece.get(from..).unwrap_or(&[]);
                bytes.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            call(Call::Log, [piece.len() as u64, word(0), word(8)]);
        }
        Ok(())
    }
}

/// Makes a call that returns.
#[cfg(not(target_os = "none"))]
pub(crate) fn call(call: Call, arguments: [u64; 3]) -> u64 {
    let _ = (call, arguments);
    0
}

/// Makes a call that returns.
#[cfg(target_os = "none")]
pub(crate) fn call(call: Call, [first, second, third]: [u64; 3]) -> u64 {
    raw([call as u64, first, second, third, 0, 0])
}

/// Makes any call.
#[cfg(target_os = "none")]
#[cfg(target_arch = "aarch64")]
pub(crate) fn raw([mut number, a, b, c, d, e]: [u64; REGISTERS]) -> u64 {
    // SAFETY: a call changes no memory, and no register but the one of its result.
    unsafe {
        core::arch::asm!(
            "svc #0",
            inout("x0") number, in("x1") a, in("x2") b, in("x3") c, in("x4") d, in("x5") e,
            options(nostack, preserves_flags)
        );
    }
    number
}

/// Makes any call.
#[cfg(target_os = "none")]
#[cfg(target_arch = "x86_64")]
pub(crate) fn raw([mut number, a, b, c, d, e]: [u64; REGISTERS]) -> u64 {
    // SAFETY: a call changes no memory, and no register but the one of its result.
    unsafe {
        core::arch::asm!(
            "vmmcall",
            inout("rdi") number, in("rsi") a, in("rdx") b, in("rcx") c, in("r8") d, in("r9") e,
            options(nostack, preserves_flags)
        );
    }
    number
}

/// Makes any call.
#[cfg(target_os = "none")]
#[cfg(target_arch = "powerpc64")]
pub(crate) fn raw([mut number, a, b, c, d, e]: [u64; REGISTERS]) -> u64 {
    // SAFETY: a call changes no memory, and no register but the one of its result and those named.
    unsafe {
        core::arch::asm!(
            "sc 1",
            inout("r3") number, in("r4") a, in("r5") b, in("r6") c, in("r7") d, in("r8") e,
            out("r0") _, out("r12") _, out("ctr") _, out("cr0") _,
            options(nostack)
        );
    }
    number
}

/// Says that the event is handled.
#[cfg(target_os = "none")]
#[inline(always)] // Once in each program.
pub(crate) fn done(answer: &Answer) -> ! {
    let Answer { value, lines, count, words: [first, second] } = *answer;
    leave([Call::Done as u64, value, lines, count, first, second])
}

/// Says that the event is handled.
#[cfg(not(target_os = "none"))]
pub(crate) fn done(_: &turnstile_service::abi::Answer) -> ! {
    unreachable!("programs of an operating system get no events")
}

/// Makes a call that does not return.
#[cfg(target_os = "none")]
#[inline(always)] // One instruction.
pub(crate) fn leave([number, a, b, c, d, e]: [u64; REGISTERS]) -> ! {
    // SAFETY: the hypervisor does not come back from it. It leaves memory alone, and all of it has been written (no `nomem`).
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc #0",
            in("x0") number, in("x1") a, in("x2") b, in("x3") c, in("x4") d, in("x5") e,
            options(nostack, noreturn)
        );
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "vmmcall",
            in("rdi") number, in("rsi") a, in("rdx") b, in("rcx") c, in("r8") d, in("r9") e,
            options(nostack, noreturn)
        );
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!(
            "sc 1",
            in("r3") number, in("r4") a, in("r5") b, in("r6") c, in("r7") d, in("r8") e,
            options(nostack, noreturn)
        );
    }
}
