// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The balloon: a queue of pages that are given, one of pages that are taken back, and one of reports of free pages; and how many pages the driver
//! is asked for.

use turnstile_balloon::{BLOCK, Balloons, Collected, FEATURES, Kind as Pages};
use turnstile_service_rt::{Answer, Event, ROOM};
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves, Virtio, World};
use turnstile_virtio::config::{BALLOON, Balloon as Configuration};
use turnstile_virtio::device::Turn;
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::violation::Violation;

/// Pages that are given, those that are taken back, and reports.
pub const QUEUES: usize = 3;
/// One for each queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of a queue. Linux reports as many ranges at once as the queue has, up to 32.
const SIZE: u16 = 32;
/// What a range, or 64 numbers of pages, takes of a budget, whose unit is about a byte that is copied: a call.
const COST: u32 = 2 << 10;
/// Places for blocks of which pages were given: a driver gives those of 2 GiB in any order.
const PLACES: usize = 1024;

const _: () = assert!(BLOCK == turnstile_service_rt::BLOCK, "what is collected is what goes");

/// The queue of pages that are given, and the one of those that are taken back.
const INFLATE: u16 = 0;
const DEFLATE: u16 = 1;

/// What the pages of each queue are.
const KINDS: [Pages; QUEUES] = [Pages::Inflate, Pages::Deflate, Pages::Report];

/// Who takes memory from the guest, and what it keeps of the service.
pub trait Giver: 'static {
    /// The guest does not need these whole blocks. Once they are touched, they are memory again, filled with zeroes.
    fn give(&mut self, address: u64, length: u64);
    /// Says whether all that was given is gone, or will stay.
    fn is_settled(&mut self) -> bool;
    /// The guest uses again what was given and is not gone yet: it stays.
    fn keep(&mut self);
    /// Returns for how many pages the driver was asked by an earlier life.
    fn wanted(&self) -> u64;
    /// Keeps that, at once.
    fn want(&mut self, pages: u64);
}

/// Pages as a giver has them: in whole blocks.
struct Whole<G> {
    giver: G,
    given: Collected<PLACES>,
    /// The driver says so before it uses what it has given.
    tells: bool,
}

impl<G: Giver> turnstile_balloon::Pages for Whole<G> {
    fn report(&mut self, address: u64, length: u64) {
        // The rest of a block may be in use.
        let Some(first) = address.checked_next_multiple_of(BLOCK) else { return };
        let end = address.saturating_add(length) / BLOCK * BLOCK;
        if first < end {
            self.giver.give(first, end - first);
        }
    }

    fn inflate(&mut self, address: u64, length: u64) {
        // Otherwise a page of a block may be in use again, and nobody knows.
        if self.tells {
            self.given.give(address, length, |block| self.giver.give(block, BLOCK));
        }
    }

    fn deflate(&mut self, address: u64, length: u64) {
        self.given.take_back(address, length);
    }

    fn is_settled(&mut self) -> bool {
        self.giver.is_settled()
    }
}

/// A balloon and its queues.
pub struct Balloon<G> {
    pages: Whole<G>,
    /// How many pages the driver is asked for.
    wanted: u64,
    queues: [Option<Balloons>; QUEUES],
    /// Not all is done that the driver gives.
    gives: bool,
    /// What the driver fills free pages with.
    poison: u32,
}

impl<G: Giver> Balloon<G> {
    /// Makes one that gives pages to this.
    pub const fn new(giver: G) -> Self {
        let pages = Whole { giver, given: Collected::new(), tells: false };
        Self { pages, wanted: 0, queues: [const { None }; QUEUES], gives: false, poison: 0 }
    }
}

impl<G: Giver> Model<QUEUES> for Balloon<G> {
    type Configuration = Configuration;
    const KIND: Kind =
        Kind { device: BALLOON, class: 0xff_0000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [SIZE; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    fn features(&self) -> Features {
        FEATURES
    }

    fn configuration(&self) -> Configuration {
        let wanted = u32::try_from(self.wanted).unwrap_or(u32::MAX);
        Configuration { wanted, ..Configuration::default() }
    }

    fn written(configuration: &Configuration) -> u64 {
        u64::from(configuration.poison) << 32 | u64::from(configuration.actual)
    }

    fn write_again(configuration: &mut Configuration, written: u64) {
        (configuration.poison, configuration.actual) = ((written >> 32) as u32, written as u32);
    }

    fn agree(&mut self, features: Features, configuration: &Configuration) {
        self.pages.tells = features.contains(Configuration::MUST_TELL_HOST);
        let poisons = features.contains(Configuration::PAGE_POISON);
        self.poison = if poisons { configuration.poison } else { 0 };
    }

    /// Blocks go when all vCPUs have left their guests, and what is taken back waits until those are gone that were given.
    fn waits(&self, number: u16) -> bool {
        let queue = self.queues.get(usize::from(number)).and_then(Option::as_ref);
        queue.is_some_and(Balloons::waits) || number == DEFLATE && self.gives
    }

    fn forget(&mut self, number: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(number)) {
            *queue = None;
        }
        self.gives &= number != INFLATE;
        // The pages of requests that were not completed are the driver's again, and those that it has given.
        self.pages.given.clear();
        self.pages.giver.keep();
    }
}

impl<M: Memory, G: Giver> Serves<QUEUES, M> for Balloon<G> {
    fn begin(
        &mut self,
        number: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        let at = usize::from(number);
        let (Some(queue), Some(&kind)) = (self.queues.get_mut(at), KINDS.get(at)) else { return Ok(()) };
        *queue = Some(match left {
            true => Balloons::resume(kind, memory, layout, options).map_err(broken)?,
            false => Balloons::new(kind, layout, options),
        });
        Ok(())
    }

    fn serve(&mut self, number: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        // A life that begins handles what was open again, and would give pages that are in use if they were taken back before that is completed.
        if number == DEFLATE && self.gives {
            return Ok(Served { interrupt: false, rest: Rest::More });
        }
        let Self { pages, queues, poison, gives, .. } = self;
        let Some(Some(queue)) = queues.get_mut(usize::from(number)) else {
            return Ok(Served { interrupt: false, rest: Rest::Idle });
        };
        let most = (*budget / COST).max(1);
        let Turn { interrupt, again } = queue.serve(memory, pages, *poison, most).map_err(broken)?;
        *budget = 0;
        // What is about to be gone is asked for again.
        let has_more = again || queue.waits();
        if number == INFLATE {
            *gives = has_more;
        }
        Ok(Served { interrupt, rest: if has_more { Rest::More } else { Rest::Idle } })
    }
}

#[cold]
fn broken(_: Violation) -> Broken {
    Broken
}

/// Handles the first event of a function that is a balloon.
pub fn attach<W: World, G: Giver>(
    function: &mut Virtio<QUEUES, VECTORS, Balloon<G>>,
    world: &W,
    kept: bool,
    bars: u64,
) -> Answer {
    let Balloon { pages, wanted, .. } = &mut function.model;
    if !kept {
        pages.giver.want(0);
    }
    *wanted = pages.giver.wanted();
    let answer = function.attach(world, kept, bars);
    // What is kept may be lost: it is told again.
    Answer { lines: answer.lines | ROOM, ..answer }
}

/// Handles an event of it.
pub fn event<W: World, G: Giver>(
    function: &mut Virtio<QUEUES, VECTORS, Balloon<G>>,
    world: &W,
    event: Event,
) -> Answer {
    match event {
        // The driver may have rung for both, and any queue may be next.
        Event::Doorbell { queues, .. } if queues & 1 << INFLATE != 0 => {
            let Balloon { gives, queues, .. } = &mut function.model;
            *gives = queues[usize::from(INFLATE)].is_some();
        }
        Event::Input { size: pages, .. } => {
            if core::mem::replace(&mut function.model.wanted, pages) != pages {
                function.changed(world);
                // Last: whoever is killed before tells the driver again.
                function.model.pages.giver.want(pages);
            }
            return function.look(world, 0);
        }
        _ => {}
    }
    function.event(world, event)
}
