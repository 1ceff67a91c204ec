// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controller's registers (NVM Express 1.4, section 3.1), in the first BAR.

use bitflags::bitflags;

use turnstile_virtio::driver::pci::Function;

use crate::drive::Failure;

/// The BAR.
const BAR: u8 = 0;
/// Controller capabilities.
const CAP: u64 = 0x00;
/// Version.
const VS: u64 = 0x08;
/// Controller configuration.
const CC: u64 = 0x14;
/// Controller status.
const CSTS: u64 = 0x1c;
/// Admin queue attributes, and where the two queues are.
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
/// The doorbells.
const DOORBELLS: u64 = 0x1000;

/// The oldest version that lists its namespaces: 1.1.
const OLDEST: u32 = 0x0001_0100;
/// The unit of CAP.TO in nanoseconds: half a second.
const TIMEOUT_UNIT: u64 = 500_000_000;

/// Fields of CC. Pages have 4 KiB, and the command set is that of disks, where they are zero (CC.MPS, CC.CSS).
const EN: u32 = 1;
const SHN: u32 = 3 << 14;
/// Entries of submission queues have 2^6 bytes, those of completion queues 2^4 (CC.IOSQES, CC.IOCQES).
const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

bitflags! {
    /// Controller status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Status: u32 {
        /// It takes commands.
        const RDY = 1;
        /// It cannot go on (Controller Fatal Status).
        const CFS = 2;
    }
}

/// Reads a register of 32 bits.
fn get<F: Function>(function: &F, at: u64) -> u32 {
    function.read(BAR, at, 4)
}

/// Writes a register of 32 bits.
fn set<F: Function>(function: &F, at: u64, value: u32) {
    function.write(BAR, at, 4, value);
}

/// Writes one of 64 bits, of which the lower half comes first.
fn set_wide<F: Function>(function: &F, at: u64, value: u64) {
    set(function, at, value as u32);
    set(function, at + 4, (value >> 32) as u32);
}

/// Reads the status of a controller that answers.
pub(super) fn status<F: Function>(function: &F) -> Result<Status, Failure> {
    if function.length(BAR) < DOORBELLS {
        return Err(Failure::Registers);
    }
    match get(function, CSTS) {
        u32::MAX => Err(Failure::Gone),
        status => Ok(Status::from_bits_truncate(status)),
    }
}

/// Goes one step towards the end of a reset. Returns whether it has ended.
pub(super) fn reset<F: Function>(function: &F) -> Result<bool, Failure> {
    let before = status(function)?;
    if get(function, CC) & EN == 0 {
        return Ok(!before.contains(Status::RDY));
    }
    // A controller that is on its way is not to be disabled before it is ready (section 3.1.5).
    if before.is_empty() {
        return Ok(false);
    }
    disable(function);
    Ok(!status(function)?.contains(Status::RDY))
}

/// Disables it, whatever its status.
pub(super) fn disable<F: Function>(function: &F) {
    set(function, CC, get(function, CC) & !(EN | SHN));
}

/// Enables it: its admin queues are at these addresses and have so many entries.
pub(super) fn enable<F: Function>(function: &F, [submission, completion]: [u64; 2], entries: u16) {
    let last = u32::from(entries) - 1;
    set(function, AQA, last << 16 | last);
    set_wide(function, ASQ, submission);
    set_wide(function, ACQ, completion);
    set(function, CC, ENTRY_SIZES);
    set(function, CC, ENTRY_SIZES | EN);
}

/// Tells it of a new index of a queue.
pub(super) fn ring<F: Function>(function: &F, bell: u64, index: u16) {
    set(function, bell, index.into());
}

/// What a controller can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capabilities {
    /// How many entries an I/O queue has at most (CAP.MQES), from 2 to 65536.
    pub(super) entries: u32,
    /// How many nanoseconds it takes at most until it is ready, or has ended its reset (CAP.TO).
    pub(super) timeout: u64,
    /// How far doorbells are apart (CAP.DSTRD).
    stride: u64,
}

impl Capabilities {
    /// Before they are known.
    pub(super) const NONE: Self = Self { entries: 0, timeout: 0, stride: 0 };

    /// Reads them, and says whether this driver can do with them.
    pub(super) fn read<F: Function>(function: &F) -> Result<Self, Failure> {
        status(function)?;
        let (low, high) = (get(function, CAP), get(function, CAP + 4));
        // CAP.CSS has a bit for the commands of disks, CAP.MPSMIN the smallest page as a power of two above 4 KiB.
        if get(function, VS) < OLDEST || high & 1 << 5 == 0 {
            return Err(Failure::Commands);
        }
        if high >> 16 & 0xf != 0 {
            return Err(Failure::Pages);
        }
        let entries = (low & 0xffff) + 1;
        if entries < 2 {
            return Err(Failure::Queues);
        }
        let units = u64::from(low >> 24).max(1);
        let new = Self { entries, timeout: units * TIMEOUT_UNIT, stride: 4 << (high & 0xf) };
        let [_, last] = new.bells(1);
        match last + 4 <= function.length(BAR) {
            true => Ok(new),
            false => Err(Failure::Registers),
        }
    }

    /// Where the doorbells of a pair of queues are: tail of the submission queue, head of the completion queue.
    pub(super) const fn bells(&self, number: u16) -> [u64; 2] {
        let tail = DOORBELLS + 2 * number as u64 * self.stride;
        [tail, tail + self.stride]
    }
}
