// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: a queue for what is typed, a queue for what the guest writes, and a size.

use turnstile_console::BUFFERS;
use turnstile_console::data::{Output, Sink, input};
use turnstile_service_rt::{Answer, Characters, Event, ROOM, split_size};
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves, Virtio, World};
use turnstile_virtio::config::{CONSOLE, Console as Size};
use turnstile_virtio::device::{Queue, Turn};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::violation::Violation;

/// One for what is typed, one for what is printed.
pub const QUEUES: usize = 2;
/// One for each queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// The queue of what is typed, and that of what is printed.
pub const RECEIVE: u16 = 0;
pub const TRANSMIT: u16 = 1;
/// Descriptors of a queue.
const LENGTH: u16 = 64;
/// What a piece of 128 characters takes of a budget, whose unit is about a byte that is copied: a serial line takes its time.
const COST: u32 = 64 << 10;
/// Characters that are printed at once.
const PRINTED: usize = 16;
/// Characters that are typed at once.
const TYPED: usize = 8;

/// What is kept: how many characters were printed before a buffer, how many were typed up to the end of one, each with the buffer's
/// position; and the size.
const PRINTED_BEFORE: usize = 0;
const TYPED_TO: usize = 1;
const SIZE: usize = 2;
/// No buffer.
const NONE: u64 = u64::MAX;
/// The bits of a count; those above are the position.
const COUNT_BITS: u32 = 48;

const fn mark(position: u16, count: u64) -> u64 {
    (position as u64) << COUNT_BITS | part(count)
}

const fn part(count: u64) -> u64 {
    count & ((1 << COUNT_BITS) - 1)
}

/// Returns the count that belongs to the buffer at a position, if it does.
fn counted(mark: u64, position: u16) -> Option<u64> {
    (mark != NONE && mark >> COUNT_BITS == position.into()).then_some(part(mark))
}

/// Where characters are shown.
pub trait Terminal: 'static {
    /// Prints up to 16 characters. Returns how many were printed in all lives.
    fn print(&mut self, characters: &[u8]) -> u64;
    /// Returns a word that is kept.
    fn get(&self, at: usize) -> u64;
    /// Writes a word that is kept: at once, and in the order of the program.
    fn set(&mut self, at: usize, word: u64);
}

/// A terminal as what a queue is written to.
struct Screen<T> {
    terminal: T,
    /// How many characters were printed.
    printed: u64,
}

impl<T: Terminal> Sink for Screen<T> {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn put(&mut self, bytes: &[u8]) {
        for characters in bytes.chunks(PRINTED) {
            self.printed = self.terminal.print(characters);
        }
    }

    fn begin(&mut self, position: u16) {
        self.terminal.set(PRINTED_BEFORE, mark(position, self.printed));
    }
}

/// What was typed and is offered.
#[derive(Clone, Copy, Default)]
struct Typed {
    bytes: [u8; TYPED],
    count: usize,
    /// How many were taken before them.
    position: u64,
}

/// A console and its queues.
pub struct Console<T> {
    screen: Screen<T>,
    size: u64,
    queues: [Option<Queue>; QUEUES],
    output: Output,
    typed: Typed,
    /// How many of those the driver has.
    taken: usize,
    /// The driver has what was typed up to here, by an earlier life, which may have said so or not.
    came: Option<u64>,
    /// Characters were offered, and not taken.
    refused: bool,
    /// There is room for them now.
    has_room: bool,
    /// An earlier life may have gone before it raised an interrupt: a bit for each queue.
    owed: u8,
}

impl<T: Terminal> Console<T> {
    /// Makes one of this terminal.
    pub const fn new(terminal: T) -> Self {
        Self {
            screen: Screen { terminal, printed: 0 },
            size: 0,
            queues: [None, None],
            output: Output::resume(0),
            typed: Typed { bytes: [0; TYPED], count: 0, position: 0 },
            taken: 0,
            came: None,
            refused: false,
            has_room: false,
            owed: 0,
        }
    }

    /// Begins a life of the service; what is kept may be of the life before.
    fn begin_life(&mut self, kept: bool) {
        if !kept {
            [(PRINTED_BEFORE, NONE), (TYPED_TO, NONE), (SIZE, 0)]
                .into_iter()
                .for_each(|(at, word)| self.screen.terminal.set(at, word));
        }
        self.size = self.screen.terminal.get(SIZE);
        self.screen.printed = self.screen.terminal.print(&[]);
    }

    /// Takes what is offered; what the driver has of it already is taken.
    fn offer(&mut self, typed: &Characters, position: u64) {
        let mut offered = Typed { position, ..Typed::default() };
        for (to, from) in offered.bytes.iter_mut().zip(typed.iter()) {
            *to = from;
            offered.count += 1;
        }
        self.taken = match self.came.take().map(|came| part(came.wrapping_sub(position))) {
            Some(came) if came <= TYPED as u64 => offered.count.min(came as usize),
            _ => 0,
        };
        self.typed = if self.taken == 0 { offered } else { Typed::default() };
    }

    /// Returns how many of the characters that were offered the driver has now. It gets the others when they are offered again.
    fn answer(&mut self) -> u64 {
        self.refused |= core::mem::take(&mut self.typed).count != 0;
        core::mem::take(&mut self.taken) as u64
    }

    /// Brings the driver what was typed.
    fn receive<M: Memory>(&mut self, memory: &M) -> Result<Served, Broken> {
        let Self { queues: [Some(queue), _], typed, screen, .. } = self else { return Ok(IDLE) };
        let interrupt = self.owed & 1 << RECEIVE != 0;
        self.owed &= !(1 << RECEIVE);
        let offered = typed.bytes.get(..typed.count).unwrap_or_default();
        if offered.is_empty() {
            // Whoever was refused is told of buffers; others bring theirs when they find some.
            let asks = self.refused && queue.arm(memory).map_err(broken)?;
            (self.has_room, self.refused) = (self.has_room | asks, self.refused & !asks);
            return Ok(Served { interrupt, rest: Rest::Idle });
        }
        let position = typed.position;
        let note = |at, count| screen.terminal.set(TYPED_TO, mark(at, position.wrapping_add(count as u64)));
        let (taken, wants) = input(queue, memory, offered, note).map_err(broken)?;
        let rest = match taken {
            0 if queue.arm(memory).map_err(broken)? => Rest::More,
            0 => Rest::Idle,
            _ => {
                (self.taken, *typed) = (taken, Typed::default());
                Rest::Idle
            }
        };
        Ok(Served { interrupt: interrupt | wants, rest })
    }

    /// Prints what the driver has written.
    fn transmit<M: Memory>(&mut self, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        let Self { queues: [_, Some(queue)], output, screen, .. } = self else { return Ok(IDLE) };
        let most = (*budget / COST).max(1);
        *budget = 0;
        let Turn { interrupt, again } = output.serve(queue, memory, screen, most).map_err(broken)?;
        let interrupt = interrupt | (self.owed & 1 << TRANSMIT != 0);
        self.owed &= !(1 << TRANSMIT);
        Ok(Served { interrupt, rest: if again { Rest::More } else { Rest::Idle } })
    }
}

const IDLE: Served = Served { interrupt: false, rest: Rest::Idle };

impl<T: Terminal> Model<QUEUES> for Console<T> {
    type Configuration = Size;
    const KIND: Kind =
        Kind { device: CONSOLE, class: 0x07_8000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [LENGTH; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    fn features(&self) -> Features {
        Features::INDIRECT_DESC | Features::EVENT_IDX | Features::RING_RESET | Size::SIZE
    }

    fn configuration(&self) -> Size {
        let (columns, rows) = split_size(self.size);
        Size { columns, rows, ..Size::default() }
    }

    fn agree(&mut self, _: Features, _: &Size) {}

    fn forget(&mut self, number: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(number)) {
            *queue = None;
        }
        self.owed &= !(1 << number);
        if number == TRANSMIT {
            self.output = Output::default();
            self.screen.terminal.set(PRINTED_BEFORE, NONE);
        } else {
            self.screen.terminal.set(TYPED_TO, NONE);
        }
    }
}

impl<M: Memory, T: Terminal> Serves<QUEUES, M> for Console<T> {
    fn begin(
        &mut self,
        number: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        let queue = match left {
            true => Queue::resume(memory, layout, options, BUFFERS).map_err(broken)?,
            false => Queue::new(layout, options, BUFFERS),
        };
        let (position, terminal) = (queue.position(), &self.screen.terminal);
        if left && number == TRANSMIT {
            let before = counted(terminal.get(PRINTED_BEFORE), position);
            let passed = before.map_or(0, |before| part(self.screen.printed.wrapping_sub(before)));
            self.output = Output::resume(passed);
        } else if left {
            self.came = counted(terminal.get(TYPED_TO), position.wrapping_sub(1));
        }
        self.owed |= u8::from(left) << number;
        if let Some(place) = self.queues.get_mut(usize::from(number)) {
            *place = Some(queue);
        }
        Ok(())
    }

    fn serve(&mut self, number: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        match number {
            RECEIVE => self.receive(memory),
            _ => self.transmit(memory, budget),
        }
    }
}

#[cold]
fn broken(_: Violation) -> Broken {
    Broken
}

/// Handles the first event of a function that is a console.
pub fn attach<W: World, T: Terminal>(
    function: &mut Virtio<QUEUES, VECTORS, Console<T>>,
    world: &W,
    kept: bool,
    bars: u64,
) -> Answer {
    function.model.begin_life(kept);
    let answer = function.attach(world, kept, bars);
    // Characters may wait, and so may a size.
    Answer { lines: answer.lines | ROOM, ..answer }
}

/// Handles an event of it.
pub fn event<W: World, T: Terminal>(
    function: &mut Virtio<QUEUES, VECTORS, Console<T>>,
    world: &W,
    event: Event,
) -> Answer {
    let answer = match event {
        Event::Input { typed, position, size, .. } => {
            if core::mem::replace(&mut function.model.size, size) != size {
                function.changed(world);
                // Last: whoever is killed before tells the driver again.
                function.model.screen.terminal.set(SIZE, size);
            }
            function.model.offer(&typed, position);
            let answer = function.look(world, 1 << RECEIVE);
            Answer { value: function.model.answer(), ..answer }
        }
        event => function.event(world, event),
    };
    let room = if core::mem::take(&mut function.model.has_room) { ROOM } else { 0 };
    Answer { lines: answer.lines | room, ..answer }
}
