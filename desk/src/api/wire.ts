// The answers of the inspector's API, by the names that the page uses. The types are made from its description.
import type { components } from './schema';

type Schemas = components['schemas'];

export type Exchange = Schemas['Exchange'];
export type Details = Schemas['Details'];
export type Message = Schemas['Message'];
export type Header = Schemas['Header'];
export type View = Schemas['View'];
export type Part = Schemas['Part'];
export type Frame = Schemas['Frame'];
export type State = Schemas['State'];
export type Diff = Schemas['Diff'];
export type DiffSection = Schemas['DiffSection'];
export type DiffLine = Schemas['DiffLine'];
export type Replay = Partial<Schemas['Replay']>;
export type Problem = Partial<Schemas['Problem']>;

export interface Page<T> {
  items: T[];
  /** Where the next page goes on, if there is one. */
  next?: number | null;
}
