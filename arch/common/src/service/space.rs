// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a service needs: of an architecture, the CPU's own part of it; of the hypervisor, what its calls reach.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use turnstile_service::abi::{self, Answer, Call, Event, Kind};

use crate::demand::Touch;
use crate::memory::Error;

/// Why the CPU has left a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Left {
    /// It makes a call: [`Space::call`] has the registers.
    Call,
    /// A physical interrupt waits, which the hypervisor takes.
    Interrupt,
    /// It did what it must not do: [`Space::explain`] says what.
    Fault,
}

/// A piece of memory that a service reaches: of a VM, of its disk, or of the machine's device that it drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its guest physical address, at a page; of a disk, one that is no memory; of a device, the address at which that reaches it.
    pub guest: u64,
    /// The physical address.
    pub host: u64,
    /// Its size in bytes, whole pages.
    pub size: u64,
    /// Where it is in the service's address space; [`Space::attach`] says it.
    pub address: u64,
    /// Of a VM's memory: the address at which the machine's device reaches it that the service drives; 0 if it does not.
    pub bus: u64,
    /// Whether the service cannot write it.
    pub read_only: bool,
    /// Whether they are registers of a device: each access happens once, by itself and in order.
    pub registers: bool,
    /// Whether its blocks are cleared and mapped when they are first touched. Until then the service does not reach them either.
    pub on_demand: bool,
}

/// The memory of a service's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Where it is: whole pages.
    pub window: Window,
    /// How many bytes of that the disk has.
    pub size: u64,
    /// The disk's name, the first character in the lowest byte.
    pub name: [u64; 2],
    /// The image of the disk, if this is what is written over it.
    pub over: Option<Over>,
}

/// The image of a disk, over which is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Where the image is, whole pages that cannot be written; `None` if all is zero.
    pub window: Option<Window>,
    /// How many bytes of that the image has.
    pub length: u64,
    /// How many bytes the disk has.
    pub disk: u64,
    /// How many bytes of room there are for what is written.
    pub room: u64,
}

impl Storage {
    /// Returns the windows that it takes.
    pub(super) fn windows(&self) -> impl Iterator<Item = Window> + use<> {
        [Some(self.window), self.over.and_then(|over| over.window)].into_iter().flatten()
    }

    /// Takes its windows, as they are mapped, out of a list whose last ones they are.
    pub(super) fn take_windows(&mut self, windows: &mut Vec<Window>) {
        let image = self.over.as_mut().and_then(|over| over.window.as_mut());
        for window in image.into_iter().chain([&mut self.window]) {
            if let Some(mapped) = windows.pop() {
                *window = mapped;
            }
        }
    }

    /// Returns the events by which a program gets to know it.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + use<> {
        let Self { window, size, name: [first, second], over } = *self;
        let flags = if window.read_only { abi::READ_ONLY } else { 0 };
        let own = Event::new(Kind::Memory, [abi::DISK | flags, size, window.address, first, second]);
        let over = over.map(|Over { window, length, disk, room }| {
            let place = window.map_or(0, |window| window.address);
            Event::new(Kind::Memory, [abi::DISK | abi::IMAGE, length, place, disk, room])
        });
        [Some(own), over].into_iter().flatten()
    }
}

/// The address space of a service, its registers, and the way in and out.
pub trait Space: Sync + 'static {
    /// Maps pieces of the memory of a VM that it serves, with the largest pages that fit, and not to be executed. Fills in where
    /// each is in the service's address space. Nothing of them stays mapped if it fails. What other members have stays as it is.
    /// Those that are mapped on demand are only prepared for [`Space::supply`].
    ///
    /// # Errors
    /// When there is no memory for the tables.
    ///
    /// # Safety
    /// The caller is inside the gate, on its way to no event. Nothing of this member is attached. What is mapped is memory of that VM alone until
    /// [`Space::detach`] has returned.
    unsafe fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error>;
    /// Takes a member's pieces away: no CPU reaches them by this address space from now on, by what it still has in its TLB either. Nothing
    /// happens if nothing is attached.
    ///
    /// # Safety
    /// The caller is inside the gate, on its way to no event.
    unsafe fn detach(&self, member: usize);
    /// Enters the service at its entry with an event in the argument registers. From now on its time for this event counts.
    ///
    /// # Safety
    /// The caller is inside the service's gate, its memory has been begun, and the caller is an exit handler on a CPU where a
    /// vCPU is resident, or runs on the service's own CPU, which was set up for that.
    unsafe fn enter(&self, event: &Event) -> Left;
    /// Enters the service as [`Space::enter`] does, and returns its answer if it has one at once. Otherwise it is as `enter` has left it.
    ///
    /// # Errors
    /// How it was left.
    ///
    /// # Safety
    /// As for [`Space::enter`].
    #[inline(always)] // Of each access.
    unsafe fn ask(&self, event: &Event) -> Result<Answer, Left> {
        // SAFETY: the caller's promise.
        let left = unsafe { self.enter(event) };
        if left == Left::Call {
            // SAFETY: the caller's promise.
            return answered(&unsafe { self.call() }).ok_or(left);
        }
        Err(left)
    }
    /// Goes on where the service was left: behind a call, with its result, or where an interrupt came.
    ///
    /// # Safety
    /// As for [`Space::enter`], on the same CPU, after it has returned, and not after a fault, but one that was
    /// [supplied](Space::supply), or is to come again.
    unsafe fn resume(&self, result: Option<u64>) -> Left;
    /// Returns the registers of the call with which the service was left.
    ///
    /// # Safety
    /// The caller is inside the service's gate.
    unsafe fn call(&self) -> [u64; abi::REGISTERS];
    /// Returns the words of the answer that the service has just given: from the call's registers, so that those of each answer need not be
    /// kept. Where [`Space::ask`] stores none, they are the answer's.
    ///
    /// # Safety
    /// As for [`Space::call`].
    #[inline(always)] // On the way of a message.
    unsafe fn words(&self, _: &Answer) -> [u64; 2] {
        // SAFETY: the caller's promise.
        let [.., first, second] = unsafe { self.call() };
        [first, second]
    }
    /// Returns the address at which the service has loaded or stored where nothing is mapped, if that is why it was left, with a fault.
    ///
    /// # Safety
    /// As for [`Space::call`].
    unsafe fn missed(&self) -> Option<u64>;
    /// Maps the block that is so many bytes behind the beginning of a window that was attached to be mapped on demand, and that is at
    /// `host`. The service may then be [resumed](Space::resume), to repeat what it did. False if there is no place for it.
    ///
    /// # Safety
    /// The caller is inside the service's gate. The block is cleared.
    unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool;
    /// Takes whole blocks away that are so many bytes behind the beginning of such a window, supplied or not: no CPU reaches them by this address
    /// space from now on, by what it still has in its TLB either. The service [misses](Space::missed) them when it touches them again.
    ///
    /// # Safety
    /// The caller is inside the service's gate, on its way to no event.
    unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>);
    /// Does something that does not count as the service's time for this event.
    ///
    /// # Safety
    /// As for [`Space::call`].
    unsafe fn excuse<R>(&self, act: impl FnOnce() -> R) -> R;
    /// Returns the time, in nanoseconds.
    fn now() -> u64;
    /// Says whether the service has taken longer for this event than it may.
    fn is_late(&self) -> bool;
    /// Puts the service's memory back to its program; what is kept stays if `keep`.
    ///
    /// # Safety
    /// The caller is inside the service's gate.
    unsafe fn begin(&self, keep: bool);
    /// Says where the service was and what its registers were when it was left, on several lines.
    ///
    /// # Errors
    /// Those of the formatter.
    fn explain(&self, left: Left, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// What a CPU does while it is kept from its guest.
pub trait Meanwhile {
    /// Takes the physical interrupts that wait.
    fn interrupt(&mut self);
    /// Somebody else is inside: does what others wait for, and lets time pass.
    fn wait(&mut self);
    /// Has the vCPU [look](Service::look) again before it goes back to its guest, when it has done what else it has to do.
    fn again(&mut self);
    /// Sends a message-signalled interrupt of a VM, if the vCPU on this CPU is the one that it interrupts and that is done at once. False
    /// if nothing was done: then it goes the way of all others ([`Outside::message`]).
    fn message(&mut self, _vm: u8, _address: u64, _data: u64) -> bool {
        false
    }
}

/// What the CPU of services needs of an architecture.
pub trait Idle: Meanwhile {
    /// Stops until the CPU is interrupted, by what has come before as well, and takes that.
    fn stop(&mut self);
    /// Returns the time, in nanoseconds.
    fn now(&self) -> u64;
}

/// What a service that is a console, or has ports, is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// The port, or 0 of a console.
    pub port: u64,
    /// How many characters: at most eight.
    pub count: u64,
    /// The characters.
    pub characters: u64,
    /// How many it has taken before them.
    pub position: u64,
    /// The size of the terminal, as [`abi::terminal_size`] has it.
    pub size: u64,
    /// The service was not told that size yet, or how the port is.
    pub is_news: bool,
}

/// What a service's calls reach.
pub trait Outside: Sync {
    /// Prints characters on the console of the VM with which the service is alone; returns how many it has printed so far.
    fn print(&self, count: u64, words: [u64; 2]) -> u64;
    /// Writes characters to the hypervisor's log.
    fn log(&self, count: u64, words: [u64; 2]);
    /// Returns 64 bits of the CPU's generator of random numbers; `None` if it has none now, or never.
    fn random(&self) -> Option<u64>;
    /// Sets the interrupt lines of the devices whose bits are in `changed` to their `levels`.
    fn lines(&self, changed: u64, levels: u64);
    /// Sends a message-signalled interrupt of a member; false if nothing of its VM is at that address.
    fn message(&self, member: usize, address: u64, data: u64) -> bool;
    /// Has a BAR of a member's PCI function decoded at an address from now on, with this size, or nowhere (0); false if that cannot be.
    fn decode(&self, member: usize, bar: u64, address: u64, size: u64) -> bool;
    /// Has vCPUs of these members [look](Service::look), a bit for each, if they run. One that pauses or stops leaves it to others.
    fn call(&self, members: u64);
    /// Interrupts the physical CPU that the service has for itself.
    fn wake(&self);
    /// Sets the alarm to a time, in nanoseconds, or off (`u64::MAX`); returns the time now.
    fn alarm(&self, at: u64) -> u64;
    /// Returns what was typed and the service has not taken, and the size of its terminal, which is told then.
    fn typed(&self) -> Typed;
    /// The service has taken so many of those, or knows the news of a port. Says whether there is more to offer at once.
    fn took(&self, typed: &Typed, count: u64) -> bool;
    /// The service has room again for what it did not take.
    fn has_room(&self) {}
    /// Passes bytes on to the other side of a port; returns [how the port is](abi::Sent) then, or `None` if there is no such port.
    fn send(&self, _port: u64, _count: u64, _words: [u64; 2]) -> Option<u64> {
        None
    }
    /// Returns a word of a port's name; `None` if there is no such port.
    fn port_name(&self, _port: u64, _word: u64) -> Option<u64> {
        None
    }
    /// Lets the machine's device that it drives reach memory and interrupt, or no longer.
    fn allow(&self, allowed: bool);
    /// An interrupt of that device is handled: the next one may come.
    fn unmask(&self);
    /// Clears and maps the block of the memory of a member's VM that contains a guest physical address, or some of it if this CPU is
    /// interrupted meanwhile. Returns the physical address of the block, which is mapped by then.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    fn touch(&self, member: usize, address: u64) -> Result<u64, Touch>;
    /// Says whether the pool has a block now, from which the memory of a member's VM comes. Takes no lock.
    fn has_memory(&self, _member: usize) -> bool {
        false
    }
    /// The guest of the VM with which the service is alone does not need these whole blocks of its memory, which go back to the pool that they came from
    /// when all vCPUs have left their guests. Of no bytes: has them leave. Returns how many such parts have not gone yet; `None` if its memory
    /// comes from no pool, or if there are too many.
    fn give_up(&self, _guest: Range<u64>) -> Option<u64> {
        None
    }
    /// That guest uses again what of these has not gone: it stays.
    fn keep(&self) {}
    /// The service goes on without these members for a while, a bit for each, and from now on for longer each time: they crash it again and again.
    fn shut_out(&self, _members: u64) {}
    /// The service has crashed, for the `number`th time, and is started anew.
    fn crashed(&self, number: u32, report: fmt::Arguments<'_>);
}

/// Returns what a service has answered, if its call says that it has.
#[inline(always)] // A comparison, on the way of each access.
pub(super) fn answered(registers: &[u64; abi::REGISTERS]) -> Option<Answer> {
    let [number, value, lines, count, first, second] = *registers;
    (number == Call::Done as u64).then_some(Answer { value, lines, count, words: [first, second] })
}
