//! Places that are used again, whose keys are not: what was told of one that is gone is told of nobody.

/// Generations go around after as many.
const GENERATIONS: u32 = 1 << 28;

/// A place at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub index: u32,
    /// Less than 2^28.
    pub generation: u32,
}

/// Values in places.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub const fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.1 = Some(value);
        Key { index, generation: place.0 }
    }

    pub fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.places.get(key.index as usize)?;
        value.as_ref().filter(|_| *generation == key.generation)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.places.get_mut(key.index as usize)?;
        value.as_mut().filter(|_| *generation == key.generation)
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let (generation, value) = &mut self.places[key.index as usize];
        *generation = (*generation + 1) % GENERATIONS;
        self.free.push(key.index);
        value.take()
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The first one from a place on, and its place.
    pub fn next(&self, from: usize) -> Option<(usize, &T)> {
        let rest = self.places.get(from..)?;
        rest.iter().enumerate().find_map(|(n, (_, value))| Some((from + n, value.as_ref()?)))
    }

    pub fn keys(&self) -> Vec<Key> {
        let all = self.places.iter().enumerate().filter(|(_, (_, value))| value.is_some());
        all.map(|(index, (generation, _))| Key { index: index as u32, generation: *generation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_what_is_gone_leads_to_nobody() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.len(), slab.remove(a), slab.remove(a)), (2, Some('a'), None));
        let c = slab.insert('c');
        assert_eq!(c.index, a.index);
        assert_eq!((slab.get(a), slab.get(c)), (None, Some(&'c')));
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.next(0), Some((0, &'c')));
        assert_eq!((slab.next(2), slab.keys(), slab.len()), (None, vec![c, b], 2));
    }
}
