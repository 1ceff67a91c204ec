// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device: two queues for control, and two for each port. Port 0, which would be a console, is not there.

use turnstile_console::control::{self, Journal};
use turnstile_console::data::input;
use turnstile_console::{BUFFERS, CONTROL, queues};
use turnstile_service_rt::{Answer, Event, PORTS, ROOM};
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves, Virtio, World};
use turnstile_virtio::config::{CONSOLE, Console, ConsoleControl};
use turnstile_virtio::device::{Queue, Turn};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::violation::Violation;

use crate::outlets::{CAME_TO, Outlets, SAID, SAYS, SENT_BEFORE, WORDS};
use crate::port::{NONE, Offered, Outlet, Port, counted, mark, part};

/// The places for ports, of which the first is that of port 0.
const PLACES: usize = 1 + PORTS as usize;
/// Two for each port, and two for control.
pub const QUEUES: usize = 2 * PLACES + 2;
/// One for all queues, and one for the configuration: a vector for each queue would be more than some machines have.
pub const VECTORS: usize = 2;
/// Descriptors of a queue.
const LENGTH: u16 = 64;
/// What a piece of 128 bytes takes of a budget, whose unit is about a byte that is copied: a serial line takes its time.
const COST: u32 = 64 << 10;

/// Keeps what is said on the control queues.
struct Kept<'a, O>(&'a mut O);

impl<O: Outlets> Journal for Kept<'_, O> {
    fn says(&mut self, position: u16, message: ConsoleControl) {
        let ConsoleControl { port, event, value } = message;
        let message = u64::from(port as u8) | u64::from(event as u8) << 8 | u64::from(value as u8) << 16;
        self.0.set(SAYS, mark(position, message));
    }

    fn keep(&mut self, words: [u64; control::WORDS]) {
        (SAID..).zip(words).for_each(|(at, word)| self.0.set(at, word));
        // Last: until then it is known by the mark.
        self.0.set(SAYS, NONE);
    }
}

/// Returns the message of a mark.
const fn message(count: u64) -> ConsoleControl {
    ConsoleControl {
        port: (count & 0xff) as u32,
        event: (count >> 8 & 0xff) as u16,
        value: (count >> 16 & 0xff) as u16,
    }
}

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Messages to the driver.
    Speak,
    /// Messages of the driver.
    Listen,
    /// What comes for a port.
    Receive(usize),
    /// What the driver writes to a port.
    Transmit(usize),
    /// That of port 0.
    None,
}

impl Use {
    fn of(queue: u16) -> Self {
        match (queue, usize::from(queue / 2)) {
            (queue, _) if queue == CONTROL.0 => Self::Speak,
            (queue, _) if queue == CONTROL.1 => Self::Listen,
            (_, pair @ 2..) if queue.is_multiple_of(2) => Self::Receive(pair - 1),
            (_, pair @ 2..) => Self::Transmit(pair - 1),
            _ => Self::None,
        }
    }
}

/// A bit of a port.
const fn bit(port: usize) -> u16 {
    1 << port
}

/// Ports and their queues.
pub struct Ports<O> {
    outlets: O,
    control: control::Ports,
    queues: [Option<Queue>; QUEUES],
    ports: [Port; PLACES],
    /// What is offered, and for which port.
    offered: Option<(usize, Offered)>,
    /// How many of those the driver has.
    taken: usize,
    /// Bytes were offered to these, and not taken.
    refused: u16,
    /// There is room for some of them now.
    has_room: bool,
    /// An earlier life may have gone before it raised an interrupt: a bit for each queue.
    owed: u32,
}

impl<O: Outlets> Ports<O> {
    /// Makes those with these other sides.
    pub const fn new(outlets: O) -> Self {
        Self {
            outlets,
            control: control::Ports::new([None; control::PORTS], control::State::NONE),
            queues: [const { None }; QUEUES],
            ports: [const { Port::new() }; PLACES],
            offered: None,
            taken: 0,
            refused: 0,
            has_room: false,
            owed: 0,
        }
    }

    /// Begins a life of the service; what is kept may be of the life before.
    fn begin_life(&mut self, kept: bool) {
        if !kept {
            (SAID..SAYS).for_each(|at| self.outlets.set(at, 0));
            (SAYS..WORDS).for_each(|at| self.outlets.set(at, NONE));
        }
        let mut all = [None; control::PORTS];
        for (number, place) in all.iter_mut().enumerate().take(PLACES).skip(1) {
            let port = |name| control::Port { is_console: false, name, size: (0, 0), is_open: false };
            *place = self.outlets.name(number).map(port);
        }
        let words = [0, 1, 2].map(|at| self.outlets.get(SAID + at));
        self.control = control::Ports::resume(all, words);
        for number in self.numbers() {
            if let Some(port) = self.ports.get_mut(number) {
                port.sent = self.outlets.send(number, &[]);
            }
        }
    }

    /// The numbers of all ports.
    fn numbers(&self) -> impl Iterator<Item = usize> + use<O> {
        let control = self.control;
        (1..PLACES).filter(move |number| control.get(*number).is_some())
    }

    /// The driver is to know how the other side of a port is.
    fn look_at(&mut self, number: usize) {
        let (Some(known), Some(port)) = (self.control.get(number), self.ports.get_mut(number)) else {
            return;
        };
        port.sent = self.outlets.send(number, &[]);
        if known.is_open != port.sent.is_open {
            self.control.set(number, Some(control::Port { is_open: port.sent.is_open, ..known }));
            Kept(&mut self.outlets).keep(self.control.words());
        }
    }

    /// Takes what is offered for a port; what the driver has of it already is taken.
    fn offer(&mut self, number: usize, offered: Offered) {
        let came = self.ports.get_mut(number).and_then(|port| port.came.take());
        self.taken = offered.taken_by(came);
        self.offered = (self.taken == 0).then_some((number, offered));
    }

    /// Returns how many of the bytes that were offered the driver has now. It gets the others when they are offered again.
    fn answer(&mut self) -> u64 {
        if let Some((number, _)) = self.offered.take() {
            self.refused |= bit(number);
        }
        core::mem::take(&mut self.taken) as u64
    }

    fn is_owed(&mut self, queue: u16) -> bool {
        let bit = 1 << queue;
        let owed = self.owed & bit != 0;
        self.owed &= !bit;
        owed
    }

    /// Brings the driver what has come for a port.
    fn receive<M: Memory>(&mut self, number: usize, memory: &M) -> Result<Served, Broken> {
        let interrupt = self.is_owed(queues(number as u16).0);
        let is_opened = self.control.state.opened & bit(number) != 0;
        let idle = Served { interrupt, rest: Rest::Idle };
        let Some(Some(queue)) = self.queues.get_mut(usize::from(queues(number as u16).0)) else {
            return Ok(idle);
        };
        // What comes before a program has opened the port Linux throws away.
        if !is_opened {
            return Ok(idle);
        }
        let Some((_, offered)) = self.offered.filter(|(of, _)| *of == number) else {
            // Whoever was refused is told of buffers; others bring theirs when they find some.
            let asks = self.refused & bit(number) != 0 && queue.arm(memory).map_err(broken)?;
            if asks {
                (self.has_room, self.refused) = (true, self.refused & !bit(number));
            }
            return Ok(idle);
        };
        let outlets = &mut self.outlets;
        let note =
            |at, count| outlets.keep_came(number, mark(at, offered.position.wrapping_add(count as u64)));
        let (taken, wants) = input(queue, memory, offered.bytes(), note).map_err(broken)?;
        let rest = match taken {
            0 if queue.arm(memory).map_err(broken)? => Rest::More,
            0 => Rest::Idle,
            _ => {
                (self.taken, self.offered) = (taken, None);
                Rest::Idle
            }
        };
        Ok(Served { interrupt: interrupt | wants, rest })
    }

    /// Passes on what the driver has written to a port, or throws it away if nobody is there.
    fn transmit<M: Memory>(&mut self, number: usize, memory: &M, most: u32) -> Result<Served, Broken> {
        let (_, at) = queues(number as u16);
        let owed = self.is_owed(at);
        let idle = Served { interrupt: owed, rest: Rest::Idle };
        let (Some(Some(queue)), Some(port)) =
            (self.queues.get_mut(usize::from(at)), self.ports.get_mut(number))
        else {
            return Ok(idle);
        };
        let Turn { interrupt, again } = match port.sent.is_open {
            true => {
                let mut outlet = Outlet { outlets: &mut self.outlets, number, sent: port.sent };
                let turn = port.output.serve(queue, memory, &mut outlet, most);
                port.sent = outlet.sent;
                turn.map_err(broken)?
            }
            false => {
                self.outlets.keep_sent(number, NONE);
                port.output.discard(queue, memory, LENGTH.into()).map_err(broken)?
            }
        };
        Ok(Served { interrupt: interrupt | owed, rest: if again { Rest::More } else { Rest::Idle } })
    }

    /// Sends messages to the driver.
    fn speak<M: Memory>(&mut self, memory: &M) -> Result<Served, Broken> {
        // An earlier life has perhaps heard something, and what follows from it is due, but did not give the buffer back: it is heard
        // again, which has to come before that is said.
        if self.owed & 1 << CONTROL.1 != 0 {
            return Ok(Served { interrupt: false, rest: Rest::More });
        }
        let owed = self.is_owed(CONTROL.0);
        let Some(Some(queue)) = self.queues.get_mut(usize::from(CONTROL.0)) else { return Ok(IDLE) };
        let wants = self.control.speak(queue, memory, &mut Kept(&mut self.outlets)).map_err(broken)?;
        // What is left waits for buffers.
        let again = self.control.has_news() && queue.arm(memory).map_err(broken)?;
        Ok(Served { interrupt: owed | wants, rest: if again { Rest::More } else { Rest::Idle } })
    }

    /// Reads messages of the driver.
    fn listen<M: Memory>(&mut self, memory: &M) -> Result<Served, Broken> {
        let owed = self.is_owed(CONTROL.1);
        let before = self.control.state.opened;
        let Some(Some(queue)) = self.queues.get_mut(usize::from(CONTROL.1)) else { return Ok(IDLE) };
        let turn = self.control.listen(queue, memory, &mut Kept(&mut self.outlets)).map_err(broken)?;
        let opened = self.control.state.opened & !before & self.refused;
        (self.has_room, self.refused) = (self.has_room | (opened != 0), self.refused & !opened);
        Ok(Served {
            interrupt: turn.interrupt | owed,
            rest: if turn.again { Rest::More } else { Rest::Idle },
        })
    }
}

const IDLE: Served = Served { interrupt: false, rest: Rest::Idle };

impl<O: Outlets> Model<QUEUES> for Ports<O> {
    type Configuration = Console;
    const KIND: Kind =
        Kind { device: CONSOLE, class: 0x07_8000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [LENGTH; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    fn features(&self) -> Features {
        Features::INDIRECT_DESC | Features::EVENT_IDX | Console::MULTIPORT
    }

    fn configuration(&self) -> Console {
        // Port 0 counts, too.
        let max_ports = self.numbers().max().map_or(1, |last| last as u32 + 1);
        Console { max_ports, ..Console::default() }
    }

    fn agree(&mut self, _: Features, _: &Console) {}

    fn forget(&mut self, number: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(number)) {
            *queue = None;
        }
        self.owed &= !(1 << number);
        match Use::of(number) {
            // Queues are reset with the device alone.
            Use::Listen => {
                self.control.reset();
                Kept(&mut self.outlets).keep(self.control.words());
            }
            Use::Transmit(port) => {
                self.outlets.keep_sent(port, NONE);
                self.ports.get_mut(port).into_iter().for_each(|port| port.output = Default::default());
            }
            Use::Receive(port) => {
                self.outlets.keep_came(port, NONE);
                self.ports.get_mut(port).into_iter().for_each(|port| port.came = None);
            }
            Use::Speak | Use::None => {}
        }
    }
}

impl<M: Memory, O: Outlets> Serves<QUEUES, M> for Ports<O> {
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
        if left {
            self.take_up(number, queue.position());
        }
        self.owed |= u32::from(left) << number;
        if let Some(place) = self.queues.get_mut(usize::from(number)) {
            *place = Some(queue);
        }
        Ok(())
    }

    fn serve(&mut self, number: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        match Use::of(number) {
            Use::Receive(port) => self.receive(port, memory),
            Use::Transmit(port) => {
                let most = (*budget / COST).max(1);
                *budget = 0;
                self.transmit(port, memory, most)
            }
            Use::Speak => self.speak(memory),
            Use::Listen => {
                *budget = 0;
                self.listen(memory)
            }
            Use::None => Ok(IDLE),
        }
    }
}

impl<O: Outlets> Ports<O> {
    /// An earlier life has left a queue, whose next buffer is at this position.
    fn take_up(&mut self, number: u16, position: u16) {
        let outlets = &mut self.outlets;
        let before = |at: usize| counted(outlets.get(at), position.wrapping_sub(1));
        match Use::of(number) {
            Use::Speak => {
                if let Some(count) = before(SAYS) {
                    self.control.said(message(count));
                    Kept(outlets).keep(self.control.words());
                }
            }
            Use::Receive(number) => {
                let came = before(CAME_TO + number - 1);
                self.ports.get_mut(number).into_iter().for_each(|port| port.came = came);
            }
            Use::Transmit(number) => {
                let begun = counted(outlets.get(SENT_BEFORE + number - 1), position);
                if let Some(port) = self.ports.get_mut(number) {
                    let passed = begun.map_or(0, |begun| part(port.sent.count.wrapping_sub(begun)));
                    port.output = turnstile_console::data::Output::resume(passed);
                }
            }
            Use::Listen | Use::None => {}
        }
    }
}

#[cold]
fn broken(_: Violation) -> Broken {
    Broken
}

/// Handles the first event of a function that is these ports.
pub fn attach<W: World, O: Outlets>(
    function: &mut Virtio<QUEUES, VECTORS, Ports<O>>,
    world: &W,
    kept: bool,
    bars: u64,
) -> Answer {
    function.model.begin_life(kept);
    let answer = function.attach(world, kept, bars);
    for number in function.model.numbers() {
        function.model.look_at(number);
    }
    // Bytes may wait.
    Answer { lines: answer.lines | ROOM, ..answer }
}

/// Handles an event of it.
pub fn event<W: World, O: Outlets>(
    function: &mut Virtio<QUEUES, VECTORS, Ports<O>>,
    world: &W,
    event: Event,
) -> Answer {
    let answer = match event {
        Event::Input { device, typed, position, .. } => {
            let number = device as usize;
            match typed.count {
                0 => change(function, world, number),
                _ => bring(function, world, number, Offered::new(&typed, position)),
            }
        }
        event => function.event(world, event),
    };
    let spoken = match function.model.control.has_news() {
        true => function.look(world, 1 << CONTROL.0).lines,
        false => 0,
    };
    let room = if core::mem::take(&mut function.model.has_room) { ROOM } else { 0 };
    Answer { lines: answer.lines | spoken | room, ..answer }
}

/// The other side of a port has come, gone, or room again.
#[cold]
fn change<W: World, O: Outlets>(
    function: &mut Virtio<QUEUES, VECTORS, Ports<O>>,
    world: &W,
    number: usize,
) -> Answer {
    if !(1..PLACES).contains(&number) {
        return Answer::default();
    }
    function.model.look_at(number);
    let (_, at) = queues(number as u16);
    if function.model.ports.get(number).is_some_and(|port| !port.sent.is_open) {
        // Now: who comes next gets nothing of it.
        match function.model.transmit(number, world.memory(), 1) {
            Ok(Served { interrupt: true, .. }) => _ = function.raise(world, at),
            Ok(_) => {}
            Err(Broken) => function.fail(world),
        }
    }
    function.look(world, 1 << at)
}

/// Bytes have come for a port.
fn bring<W: World, O: Outlets>(
    function: &mut Virtio<QUEUES, VECTORS, Ports<O>>,
    world: &W,
    number: usize,
    offered: Offered,
) -> Answer {
    if !(1..PLACES).contains(&number) {
        return Answer::default();
    }
    function.model.offer(number, offered);
    let (at, _) = queues(number as u16);
    let answer = function.look(world, 1 << at);
    Answer { value: function.model.answer(), ..answer }
}
