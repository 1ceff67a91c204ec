// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all disks have in common.
//!
//! ```text
//! begin → proceed …: geometry → read, write … → ring → finished … → arm: again, if it says so → wait for an interrupt
//! ```
//!
//! Commands have tags, below [`Drive::DEPTH`], which the caller chooses. A tag, and the memory that its command names, are the device's from when
//! the command is given until it is finished.

use core::fmt;

use turnstile_virtio::driver::Bus;
use turnstile_virtio::driver::pci;
use turnstile_virtio::memory::Outside;
use turnstile_virtio::violation::Violation;

/// How many bytes a sector has, whatever the size of a block.
pub const SECTOR: u32 = 512;
/// What the memory of a driver, and that of a command, begins at a multiple of.
pub const PAGE: u64 = 4096;
/// How many bytes a command reads or writes at most, whatever the device takes.
pub const MOST_BYTES: u32 = 128 << 10;

/// How many segments a command has at most.
pub const MOST_SEGMENTS: usize = (MOST_BYTES as u64 / PAGE) as usize + 1;

/// Bytes that lie together, as a device addresses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where the first one is.
    pub address: u64,
    /// How many: not none.
    pub length: u32,
}

/// Which way the bytes of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// Why a disk cannot be used, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no disk, or no driver for it.
    Unknown,
    /// virtio: it cannot be begun, or says that it cannot go on.
    Transport(pci::Failure),
    /// virtio: it has broken a rule of its queues.
    Violation(Violation),
    /// The driver's memory is too small, or not aligned.
    Memory,
    /// It does not answer any more: what is read of it is ones.
    Gone,
    /// It says that it cannot go on, or has stopped.
    Fatal,
    /// It does not get ready, does not end its reset, or does not finish a command of its start in the time that it has for that.
    Slow,
    /// Its registers are not all within its BAR.
    Registers,
    /// It is of before NVM Express 1.1, or has not the commands of disks.
    Commands,
    /// It does not take pages of 4 KiB.
    Pages,
    /// Its queues cannot have entries of the usual size, or room for a command.
    Queues,
    /// It refuses a command of its start, with this status.
    Start(u16),
    /// It has finished a command that it does not have, of this queue and with this tag.
    Finished {
        /// The queue that it names.
        queue: u16,
        /// The tag.
        tag: u16,
    },
    /// It has no disk whose blocks have 512 to 4096 bytes and nothing else, or says nonsense about its size.
    Blocks,
}

impl Failure {
    /// Says it in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "there is no driver for it",
            Self::Transport(failure) => failure.text(),
            Self::Violation(_) => "it has broken a rule of its queues",
            Self::Memory => "its memory is too small",
            Self::Gone => "it does not answer any more",
            Self::Fatal => "it has stopped",
            Self::Slow => "it is not ready in its time",
            Self::Registers => "its registers are not within its BAR",
            Self::Commands => "it lacks the commands of disks",
            Self::Pages => "it does not take pages of 4 KiB",
            Self::Queues => "its queues are too small",
            Self::Start(_) => "it refuses a command of its start",
            Self::Finished { .. } => "it has finished a command that it does not have",
            Self::Blocks => "it has no disk with blocks of 512 to 4096 bytes",
        }
    }
}

impl From<pci::Failure> for Failure {
    fn from(failure: pci::Failure) -> Self {
        Self::Transport(failure)
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<Outside> for Failure {
    fn from(_: Outside) -> Self {
        Self::Memory
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::Start(status) => write!(f, "{}: status {status:#x}", self.text()),
            failure => f.write_str(failure.text()),
        }
    }
}

impl core::error::Error for Failure {}

/// Why a command is not taken. Nothing has happened, and the device goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The device has as many commands as it takes at once: one has to finish first.
    Full,
    /// The tag is of a command that is not finished, or not below [`Drive::DEPTH`].
    Tag,
    /// Its sectors are no whole blocks, none, more than one command can have, or not all on the disk.
    Range,
    /// Its memory is not aligned, or no memory.
    Memory,
    /// The disk does not do such things, or the device is not ready.
    Unsupported,
}

impl Refusal {
    /// Says it in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Full => "the disk has no room for another command",
            Self::Tag => "the tag is not free",
            Self::Range => "the disk has no such range",
            Self::Memory => "the memory cannot be used",
            Self::Unsupported => "the disk does not do such things",
        }
    }
}

impl From<Outside> for Refusal {
    fn from(_: Outside) -> Self {
        Self::Memory
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Refusal {}

/// Why a command has failed. What it would have read or written is anything then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The device could not do it.
    Io,
    /// The device does not do such things.
    Unsupported,
}

/// What has become of a command.
pub type Outcome = Result<(), Refused>;

/// What a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size in sectors of 512 bytes: whole blocks, not zero, below 2^55.
    pub sectors: u64,
    /// The size of a block in bytes: a power of two from 512 to 4096. Commands have whole blocks.
    pub block: u32,
    /// How many commands it takes at once: from 1 to [`Drive::DEPTH`].
    pub depth: u16,
    /// How many bytes a command reads or writes at most: whole blocks, up to [`MOST_BYTES`].
    pub most_bytes: u32,
    /// It can be written.
    pub writable: bool,
    /// What is written may be lost with the power until it is flushed. Otherwise [`Drive::flush`] is neither needed nor possible.
    pub cache: bool,
    /// How many sectors a command discards at most: whole blocks; 0 if it cannot.
    pub most_discarded: u32,
    /// What a discarded range should begin and end at a multiple of, in sectors: at least a block.
    pub discard_alignment: u32,
    /// How many sectors a command fills with zeroes at most: whole blocks; 0 if it cannot.
    pub most_zeroed: u32,
}

/// A disk of the machine, whose commands finish in any order.
///
/// No call waits for the device, but for the end of a virtio device's reset, for 2000 reads of its status; nor does one take longer if it lies. Behind a [`Failure`] the device is to be stopped; it may begin again.
pub trait Drive: Sized {
    /// How many bytes of memory it needs for itself, at a multiple of [`PAGE`].
    const BYTES: u64;

    /// A driver without a device.
    const NEW: Self;

    /// Tags are below this. A device may take fewer commands at once: see [`Geometry::depth`].
    const DEPTH: u16;

    /// Resets the device, whatever it does. Returns whether that has ended, so that it touches no memory; otherwise call again, later: NVM Express
    /// gives a controller seconds for it. Registers are all that it needs.
    fn reset<B: Bus>(bus: &B) -> Result<bool, Failure>;

    /// Resets the device, whatever it does, and begins: [`Drive::proceed`] is next. `at` is where its memory begins.
    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure>;

    /// Goes on with what [`Drive::begin`] has begun, as far as the device lets it without waiting. `now` is a time in nanoseconds that only grows.
    /// Returns what the disk is, once it is ready: then the commands below can be given. Before, call again about each millisecond, and when it has
    /// interrupted. The caller's memory may be the device's, from a life before, until then.
    fn proceed<B: Bus>(&mut self, bus: &B, now: u64) -> Result<Option<Geometry>, Failure>;

    /// Reads `length` bytes from a sector to `address`: lying together, as the device addresses them, from a multiple of [`PAGE`].
    fn read<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal>;

    /// Writes `length` bytes from `address`, as [`Drive::read`] reads them.
    fn write<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal>;

    /// Moves bytes between the disk, from a sector on, and up to [`MOST_SEGMENTS`] segments of memory that the device reaches, for which the caller answers.
    /// [`Refusal::Memory`] if the device does not take segments that lie like that.
    fn scatter<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        direction: Direction,
        sector: u64,
        segments: &[Segment],
    ) -> Result<(), Refusal>;

    /// Makes sure that all that was written by commands that are finished survives a loss of power.
    fn flush<B: Bus>(&mut self, bus: &B, tag: u16) -> Result<(), Refusal>;

    /// Sectors are not needed any more; they may hold anything from now on. A hint.
    fn discard<B: Bus>(&mut self, bus: &B, tag: u16, sector: u64, sectors: u32) -> Result<(), Refusal>;

    /// Fills sectors with zeroes. Room for them may be given up if `may_discard`.
    fn zero<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        sectors: u32,
        may_discard: bool,
    ) -> Result<(), Refusal>;

    /// Tells the device of the commands that were given since the last call.
    fn ring<B: Bus>(&mut self, bus: &B) -> Result<(), Failure>;

    /// Takes the next command that is finished, in any order: its tag, and what became of it. `None` if there is none now. It returns at most as many
    /// as were given.
    fn finished<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, Outcome)>, Failure>;

    /// Asks for an interrupt when the next command is finished. Returns whether one is already, for which no interrupt may come: then take it, and
    /// ask again.
    fn arm<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure>;

    /// The device has interrupted: sees to it that it does so again, once [`Drive::arm`] was called behind it.
    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure>;

    /// An interrupt has brought nothing, or one has not come: says whether the device goes on.
    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure>;

    /// Resets the device: there is none, and all commands are forgotten. It may touch their memory until [`Drive::reset`] says that it does not.
    fn stop<B: Bus>(&mut self, bus: &B);
}
