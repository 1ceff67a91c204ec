// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that clients wanted and the hypervisor has not answered.

use serde_json::Value;
use turnstile_link::{Command, Outcome};

use super::protocol::{Answer, Kind, Refusal};
use super::server::Caller;

/// The commands under way.
#[derive(Default)]
pub struct Told {
    all: Vec<Wish>,
}

/// What one client wants.
struct Wish {
    caller: Caller,
    /// The commands without an answer.
    left: Vec<Command>,
    /// What the hypervisor refused.
    refused: Vec<(Command, Outcome)>,
}

impl Told {
    /// Takes a client's commands, one for each VM.
    pub fn add(&mut self, caller: Caller, commands: &[Command]) {
        self.all.push(Wish { caller, left: commands.to_vec(), refused: Vec::new() });
    }

    /// Takes the hypervisor's answer; false if no client waits for it. `name` is that of the command's VM, or service.
    pub fn hear(&mut self, command: Command, outcome: Outcome, name: impl Fn(Command) -> String) -> bool {
        // The hypervisor answers in the order in which it was told.
        let of = |wish: &Wish| wish.left.iter().position(|left| *left == command);
        let Some((index, left)) =
            self.all.iter().enumerate().find_map(|(index, wish)| Some((index, of(wish)?)))
        else {
            return false;
        };
        if let Some(wish) = self.all.get_mut(index) {
            wish.left.remove(left);
            if outcome != Outcome::Accepted {
                wish.refused.push((command, outcome));
            }
            if wish.left.is_empty() {
                self.all.remove(index).end(name);
            }
        }
        true
    }
}

impl Wish {
    fn end(self, name: impl Fn(Command) -> String) {
        let Some(&(command, outcome)) = self.refused.first() else {
            return self.caller.answer(&Answer::Ok(Value::Null));
        };
        let kind = match outcome {
            Outcome::NoSuchVm => Kind::NoSuchVm,
            Outcome::NoBalloon => Kind::NoBalloon,
            _ => Kind::NotNow,
        };
        let what = match (command, outcome) {
            (Command::KillService { .. }, _) => {
                format!("the VM that service `{}` serves does not run", name(command))
            }
            (_, Outcome::NoBalloon) => format!("VM `{}` has no balloon", name(command)),
            (Command::Stop { .. } | Command::Balloon { .. }, Outcome::NotNow) => {
                format!("VM `{}` does not run", name(command))
            }
            _ => format!("the present state of VM `{}` does not allow this", name(command)),
        };
        self.caller.answer(&Answer::Error(Refusal { kind, what, vms: Vec::new() }));
    }
}
