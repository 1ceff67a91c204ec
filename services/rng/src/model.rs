// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entropy device: one queue of requests for random bytes.

use turnstile_rng::{BUFFERS, Source, serve};
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::ENTROPY;
use turnstile_virtio::device::{Queue, Turn};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::violation::Violation;

/// A driver asks for one piece after the other.
pub const QUEUES: usize = 1;
/// One for the queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of the queue.
const SIZE: u16 = 16;
/// What a request takes of a budget, whose unit is about a byte that is copied: it may be 32 calls, each of which waits for a generator
/// that many CPUs have only one of.
const COST: u32 = 32 << 10;

/// Where random words come from.
pub trait Generator: 'static {
    /// Returns 64 bits that nobody can guess; `None` if there are none now.
    fn draw(&mut self) -> Option<u64>;
}

/// What fills requests from a generator.
struct Words<G> {
    generator: G,
    /// It had none when it was asked last.
    is_dry: bool,
}

impl<G: Generator> Source for Words<G> {
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        self.is_dry = bytes.chunks_mut(size_of::<u64>()).any(|chunk| match self.generator.draw() {
            Some(word) => {
                chunk.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
                false
            }
            None => true,
        });
        !self.is_dry
    }
}

/// A source of random numbers and its queue.
pub struct Entropy<G> {
    words: Words<G>,
    queue: Option<Queue>,
    /// An earlier life may have gone before it raised an interrupt.
    owed: bool,
}

impl<G: Generator> Entropy<G> {
    /// Makes one that draws from this generator.
    pub const fn new(generator: G) -> Self {
        Self { words: Words { generator, is_dry: false }, queue: None, owed: false }
    }
}

impl<G: Generator> Model<QUEUES> for Entropy<G> {
    type Configuration = ();
    const KIND: Kind =
        Kind { device: ENTROPY, class: 0xff_0000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [SIZE; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    fn features(&self) -> Features {
        Features::INDIRECT_DESC | Features::EVENT_IDX | Features::RING_RESET
    }

    fn configuration(&self) {}

    fn agree(&mut self, _: Features, (): &()) {}

    fn forget(&mut self, _: u16) {
        self.queue = None;
    }
}

impl<M: Memory, G: Generator> Serves<QUEUES, M> for Entropy<G> {
    fn begin(
        &mut self,
        _: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        self.queue = Some(match left {
            true => Queue::resume(memory, layout, options, BUFFERS).map_err(broken)?,
            false => Queue::new(layout, options, BUFFERS),
        });
        self.owed = left;
        Ok(())
    }

    fn serve(&mut self, _: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        let Some(queue) = &mut self.queue else { return Ok(Served { interrupt: false, rest: Rest::Idle }) };
        let most = (*budget / COST).max(1);
        self.words.is_dry = false;
        let Turn { interrupt, again } = serve(queue, memory, &mut self.words, most).map_err(broken)?;
        // Whoever has more to do, or waits for the generator, goes on when others have had a turn.
        let waits = again || self.words.is_dry;
        *budget = 0;
        let interrupt = interrupt | core::mem::take(&mut self.owed);
        Ok(Served { interrupt, rest: if waits { Rest::More } else { Rest::Idle } })
    }
}

#[cold]
fn broken(_: Violation) -> Broken {
    Broken
}
