// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads who runs on a VM's physical CPUs: `schedule`, `weight` and `realtime`.

use std::ops::RangeInclusive;

use turnstile_bundle::{Class, Schedule};

use super::read::{At, Reader};

/// Reads the schedule of a VM; pinned, unless the file says otherwise.
pub fn read(reader: &mut Reader<'_, '_>) -> Schedule {
    let shared = reader
        .choice("schedule", &[(Schedule::PINNED, false), (Schedule::SHARED, true)])
        .is_some_and(|shared| shared.value);
    let weight = number(reader, "weight", widen(Class::WEIGHTS));
    let priority = number(reader, "realtime", widen(Class::PRIORITIES));
    if !shared {
        for (key, at) in [("weight", &weight), ("realtime", &priority)] {
            if let Some(at) = at {
                let what = format!("`{key}` is for VMs that share their physical CPUs");
                let help = format!("write schedule = \"shared\", or leave `{key}` out");
                reader.problem(at.span.clone(), what, help);
            }
        }
        return Schedule::Pinned;
    }
    if let (Some(weight), Some(_)) = (&weight, &priority) {
        let help = "leave `weight` or `realtime` out";
        reader.problem(weight.span.clone(), "a real-time VM has no weight", help);
    }
    Schedule::Shared(match (priority, weight) {
        (Some(priority), _) => Class::RealTime { priority: priority.value as u8 },
        (None, Some(weight)) => Class::Fair { weight: weight.value as u16 },
        (None, None) => Class::default(),
    })
}

fn widen<T: Copy + Into<u64>>(bounds: RangeInclusive<T>) -> RangeInclusive<u64> {
    (*bounds.start()).into()..=(*bounds.end()).into()
}

/// Reads a number that lies within bounds.
fn number(reader: &mut Reader<'_, '_>, key: &str, bounds: RangeInclusive<u64>) -> Option<At<u64>> {
    let number = reader.number(key)?;
    if bounds.contains(&number.value) {
        return Some(number);
    }
    let what = format!("`{key}` cannot be {}", number.value);
    reader.problem(number.span, what, format!("give {} to {}", bounds.start(), bounds.end()));
    None
}
