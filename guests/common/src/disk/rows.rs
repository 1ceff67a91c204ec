// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What requests to a disk cost. `row=` on the command line names the row, and `depth=` says how many requests one doorbell is for. Each
//! is of 4 KiB; they read, and with `write` they write. With `zeros` the disk keeps nothing, and reads as zeros. With `untouched` each reads into a block of 2 MiB
//! that nobody has touched; `from=` says how many bytes behind the guest's own memory the first one is at least.
//!
//! The driver does as Linux: a table of three descriptors for each request, EVENT_IDX, one interrupt for what is done together.

use turnstile_virtio::config::{BLOCK, Block, BlockRequest};
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::{Buffer, DESCRIPTOR, Options};

use super::driver::{MEMORY, SECTOR};
use crate::virtio::ring::{Ring, Wrong};
use crate::virtio::{Function, Machine, PATIENCE};
use crate::{clock, options, row};

/// What Linux accepts.
const FEATURES: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Block::SIZE_MAX)
    .union(Block::SEG_MAX)
    .union(Block::RO)
    .union(Block::BLK_SIZE)
    .union(Block::FLUSH)
    .union(Block::TOPOLOGY)
    .union(Block::CONFIG_WCE)
    .union(Block::MQ)
    .union(Block::DISCARD)
    .union(Block::WRITE_ZEROES);

/// Descriptors of the queue, as many as the device offers.
const SIZE: usize = 128;
/// Bytes of a request: a page of most kernels.
const PIECE: u64 = 4096;
/// Where its last word is.
const LAST: u64 = PIECE - 8;
/// How many pieces of the disk are used, in turn.
const PIECES: u64 = 64;
/// The most requests with one doorbell.
const DEEPEST: u64 = 16;
/// Where the requests are in [`Machine::memory`], and where the parts of each are in its room: the header, the status, the table.
const REQUESTS: u64 = 0x2000;
const ROOM: u64 = 0x80;
const STATUS: u64 = 0x10;
const TABLE: u64 = 0x40;
/// Where their data are.
const DATA: u64 = 0x1_0000;
/// Bytes that a hypervisor maps at once, and where there are some that nobody has touched: what lies below, a hypervisor has touched itself
/// when it loaded the guest.
const MAPPED: u64 = 2 << 20;
const BEHIND: u64 = 16 << 20;

const _: () = assert!(TABLE + 3 * DESCRIPTOR <= ROOM && REQUESTS + DEEPEST * ROOM <= DATA);
const _: () = assert!(DATA + DEEPEST * PIECE <= MEMORY);

/// Measures a row.
pub fn measure(machine: &Machine, row: &str) -> Result<(), Wrong> {
    let depth = options::number("depth", 1).clamp(1, DEEPEST);
    let mut disk = Disk::start(machine)?;
    disk.write_all()?;
    disk.depth = depth;
    disk.is_kept = options::get("zeros").is_none();
    disk.writes = options::get("write").is_some();
    disk.untouched = options::get("untouched").map(|_| {
        let from = machine.memory + MEMORY + options::number("from", BEHIND);
        from.next_multiple_of(MAPPED)
    });
    let mut disk = row::measure(row, disk)?;
    (disk.depth, disk.untouched, disk.data) = (DEEPEST, None, machine.memory + DATA);
    disk.read_all()
}

/// A disk. Each piece begins and ends with the number of the request that has written it.
struct Disk<'a> {
    machine: &'a Machine,
    function: Function<'a>,
    ring: Ring<'a, SIZE>,
    /// Where the data of the first request are.
    data: u64,
    /// The next block that nobody has touched, if they are to be there.
    untouched: Option<u64>,
    /// Whether it is written to; otherwise it is read.
    writes: bool,
    /// How many requests one doorbell is for.
    depth: u64,
    /// How many have written, and how many have read.
    written: u64,
    read: u64,
    /// Whether what was written is read.
    is_kept: bool,
    /// The interrupts that were seen.
    interrupts: u32,
}

impl row::Driver for Disk<'_> {
    fn operate(&mut self) -> Result<(), Wrong> {
        if self.writes { self.write() } else { self.read() }
    }
}

impl<'a> Disk<'a> {
    fn start(machine: &'a Machine) -> Result<Self, Wrong> {
        let function = Function::find(machine, BLOCK).ok_or("there is no disk")?;
        if !function.reset() {
            return Err("the disk does not reset");
        }
        let agreed = function.agree(FEATURES.bits()).ok_or("the disk does not agree")?;
        let options = Options::from(Features::from_bits_retain(agreed));
        let ring = Ring::new(&function, 0, 0, options).ok_or("the disk has no queue")?;
        if !function.ready() {
            return Err("the disk does not start");
        }
        let interrupts = (machine.interrupts)();
        let data = machine.memory + DATA;
        Ok(Self {
            machine,
            function,
            ring,
            data,
            untouched: None,
            writes: false,
            depth: DEEPEST,
            written: 0,
            read: 0,
            is_kept: true,
            interrupts,
        })
    }

    fn write_all(&mut self) -> Result<(), Wrong> {
        (0..PIECES.div_ceil(self.depth)).try_for_each(|_| self.write())
    }

    fn read_all(&mut self) -> Result<(), Wrong> {
        (0..PIECES.div_ceil(self.depth)).try_for_each(|_| self.read())
    }

    /// Where the data of a request are.
    fn data(&self, slot: u64) -> u64 {
        self.data + PIECE * slot
    }

    fn write(&mut self) -> Result<(), Wrong> {
        for slot in 0..self.depth {
            let number = self.written + slot;
            [0, LAST].into_iter().for_each(|at| (self.machine.write)(self.data(slot) + at, 8, number));
            self.offer(slot, BlockRequest::OUT, number % PIECES)?;
        }
        self.written += self.depth;
        // The status alone.
        self.finish(1)
    }

    fn read(&mut self) -> Result<(), Wrong> {
        if let Some(block) = &mut self.untouched {
            self.data = *block;
            *block += MAPPED;
        }
        for slot in 0..self.depth {
            self.offer(slot, BlockRequest::IN, (self.read + slot) % PIECES)?;
        }
        self.finish(PIECE as u32 + 1)?;
        let last = self.written - 1;
        let found = |slot| [0, LAST].map(|at| (self.machine.read)(self.data(slot) + at, 8));
        // Who wrote a piece last.
        let writer = |slot| last - (last - (self.read + slot) % PIECES) % PIECES;
        let expected = |slot| if self.is_kept { writer(slot) } else { 0 };
        if !(0..self.depth).all(|slot| found(slot) == [expected(slot); 2]) {
            return Err("the disk does not say what was written");
        }
        self.read += self.depth;
        Ok(())
    }

    /// Offers a request.
    fn offer(&mut self, slot: u64, kind: u32, piece: u64) -> Result<(), Wrong> {
        let request = self.machine.memory + REQUESTS + ROOM * slot;
        let write = self.machine.write;
        write(request, 8, kind.into());
        write(request + 8, 8, piece * (PIECE / SECTOR));
        write(request + STATUS, 1, 0xff);
        let buffers = [
            Buffer { address: request, length: BlockRequest::LENGTH as u32, writable: false },
            Buffer { address: self.data(slot), length: PIECE as u32, writable: kind == BlockRequest::IN },
            Buffer { address: request + STATUS, length: 1, writable: true },
        ];
        let offered = self.ring.queue.add_indirect(&self.ring.ram, request + TABLE, &buffers);
        offered.map(drop).map_err(|_| "the ring is full")
    }

    /// Rings, and waits until all is done; for each the device has written so many bytes.
    fn finish(&mut self, written: u32) -> Result<(), Wrong> {
        self.ring.show()?;
        let mut left = self.depth;
        while left != 0 {
            let count = self.machine.interrupts;
            if !clock::wait(PATIENCE, || count() != self.interrupts) {
                return Err("a request is not done");
            }
            self.interrupts = count();
            self.function.acknowledge();
            // What is done while it asks for the next interrupt may have none.
            loop {
                while let Some(used) = self.ring.take()? {
                    if used.written != written {
                        return Err("the disk has written another number of bytes");
                    }
                    left = left.checked_sub(1).ok_or("more was done than was asked for")?;
                }
                if !self.ring.arm()? {
                    break;
                }
            }
        }
        let status = |slot| (self.machine.read)(self.machine.memory + REQUESTS + ROOM * slot + STATUS, 1);
        let all = (0..self.depth).all(|slot| status(slot) == BlockRequest::OK.into());
        if all { Ok(()) } else { Err("a request has failed") }
    }
}
