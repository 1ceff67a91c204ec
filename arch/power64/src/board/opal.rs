// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's services (OPAL API, in skiboot's `doc/opal-api`). Calls may be made on every CPU, and take long: never on
//! a light exit. OPAL is big-endian: so are the numbers that it reads and writes in memory.

use core::sync::atomic::{AtomicU64, Ordering};

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Token {
    /// Writes to a console.
    ConsoleWrite = 1,
    /// Reads from a console.
    ConsoleRead = 2,
    /// Reads the real-time clock.
    RtcRead = 3,
    /// Powers the machine off.
    CecPowerDown = 5,
    /// Resets the machine.
    CecReboot = 6,
    /// Lets the firmware work on what it has to do.
    PollEvents = 10,
    /// Reads four bytes of the configuration space of a PCI function.
    PciConfigReadWord = 15,
    /// Writes four bytes of it.
    PciConfigWriteWord = 18,
    /// Says how many bytes a console takes.
    ConsoleWriteBufferSpace = 25,
    /// Says whether a partitionable endpoint of a PCI host bridge is frozen.
    PciEehFreezeStatus = 23,
    /// Lets a partitionable endpoint of a PCI host bridge go on after an error.
    PciEehFreezeClear = 26,
    /// Says which partitionable endpoint a PCI function belongs to.
    PciSetPe = 31,
    /// Says which partitionable endpoint may send a message.
    PciSetXivePe = 37,
    /// Says what a message of 64 bits is.
    GetMsi64 = 40,
    /// Starts a CPU.
    StartCpu = 41,
    /// Says what a CPU is doing.
    QueryCpuStatus = 42,
    /// Lets a partitionable endpoint reach what a table says.
    PciMapPeDmaWindow = 44,
    /// Lets a partitionable endpoint reach memory, untranslated.
    PciMapPeDmaWindowReal = 45,
    /// Sets the byte order and the kind of translation of all CPUs.
    ReinitCpus = 70,
    /// Waits until a console has sent everything.
    ConsoleFlush = 117,
    /// Has a host bridge forget what it has cached of tables.
    PciTceKill = 126,
}

/// An error that OPAL returned (OPAL API, "return codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i64);

/// Where OPAL's data is; zero until the boot code has said it.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Where OPAL is entered.
static ENTRY: AtomicU64 = AtomicU64::new(0);

/// Tells where OPAL is.
///
/// # Safety
/// Both are what skiboot has passed to the boot code.
pub unsafe fn set(base: u64, entry: u64) {
    BASE.store(base, Ordering::Relaxed);
    ENTRY.store(entry, Ordering::Relaxed);
}

/// Calls a service. Returns what it answers; negative numbers are errors.
///
/// # Safety
/// The arguments are what the service expects; where they are addresses, it may read and write there as it does.
pub unsafe fn call_raw(token: u64, arguments: &[u64]) -> i64 {
    let mut all = [0; 8];
    all.iter_mut().zip(arguments).for_each(|(slot, argument)| *slot = *argument);
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            fn turnstile_opal(token: u64, arguments: *const [u64; 8], base: u64, entry: u64) -> i64;
        }
        // SAFETY: OPAL is there, the caller answers for the arguments, and all registers that the ABI preserves are.
        unsafe { turnstile_opal(token, &all, BASE.load(Ordering::Relaxed), ENTRY.load(Ordering::Relaxed)) }
    }
    #[cfg(not(target_os = "none"))]
    {
        #[cfg(test)]
        if let Some(answer) = fake::answer(token, &all) {
            return answer;
        }
        let _ = (token, all);
        // Whatever is asked: success, unless a test says something else.
        crate::cpu::regs::fakes::get("OPAL") as i64
    }
}

/// Calls a service.
///
/// # Errors
/// What it answers, if that is negative.
///
/// # Safety
/// As for [`call_raw`].
pub unsafe fn call(token: Token, arguments: &[u64]) -> Result<u64, Error> {
    // SAFETY: the caller's promise.
    let answer = unsafe { call_raw(token as u64, arguments) };
    u64::try_from(answer).map_err(|_| Error(answer))
}

/// Lets the firmware work on what it has to do. Returns the events that are pending.
pub fn poll() -> u64 {
    let mut events = 0u64;
    // SAFETY: it writes the events.
    let _ = unsafe { call(Token::PollEvents, &[&raw mut events as u64]) };
    u64::from_be(events)
}

/// Makes interrupts little-endian in hypervisor state, and translation radix, on all CPUs. No other CPU has been started.
///
/// # Errors
/// When the firmware cannot.
pub fn set_up_cpus() -> Result<(), Error> {
    const HILE_LE: u64 = 1 << 1;
    const MMU_RADIX: u64 = 1 << 3;
    // SAFETY: changes how interrupts are taken: none is, before the vectors are in place.
    unsafe { call(Token::ReinitCpus, &[HILE_LE | MMU_RADIX]) }.map(drop)
}

/// Starts a CPU, by the number that the interrupt controller has for it.
///
/// # Errors
/// When the firmware cannot.
///
/// # Safety
/// What is at `entry` takes a CPU as skiboot leaves it.
pub unsafe fn start_cpu(server: u32, entry: u64) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { call(Token::StartCpu, &[server.into(), entry]) }.map(drop)
}

/// A firmware for tests that are about what it is asked.
#[cfg(test)]
pub(crate) mod fake {
    use std::boxed::Box;
    use std::cell::RefCell;

    type Firmware = Box<dyn FnMut(u64, &[u64; 8]) -> i64>;

    std::thread_local!(static FIRMWARE: RefCell<Option<Firmware>> = const { RefCell::new(None) });

    /// Lets `firmware` answer this thread's calls: by the service's number and its arguments.
    pub(crate) fn set(firmware: impl FnMut(u64, &[u64; 8]) -> i64 + 'static) {
        FIRMWARE.set(Some(Box::new(firmware)));
    }

    pub(super) fn answer(token: u64, arguments: &[u64; 8]) -> Option<i64> {
        FIRMWARE.with_borrow_mut(|firmware| firmware.as_mut().map(|firmware| firmware(token, arguments)))
    }
}
