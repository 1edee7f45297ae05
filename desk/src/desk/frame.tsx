// The frame of the desk: places, the organisation, the account.
import { useEffect, useRef } from 'preact/hooks';
import { Mark } from '../parts/mark';
import { plain } from '../parts/format';
import { ThemeButton } from '../parts/theme';
import { complain, say } from '../parts/toast';
import { AccountPlace } from './account';
import { chooseOrganisation, isReachable, logOut, memberships, organisation, UNREACHABLE, useApi } from './api';
import { Audit } from './audit';
import { Catchment } from './catchment';
import { Domains, OneDomain } from './domains';
import { Edges, OneEdge } from './edges';
import { Flows } from './flows';
import { OneServiceToken, ServiceTokens } from './machines';
import { Overview } from './overview';
import { Place } from './parts';
import { People } from './people';
import { Plan } from './plan';
import { NewPolicy, OnePolicy, Policies } from './policies';
import { NewProvider, OneProvider, Providers } from './providers';
import { A, place } from './router';
import { OneSocket } from './socket';
import { NewSocket, Sockets } from './sockets';
import { Ssh } from './ssh';
import { Tokens } from './tokens';
import { Tunnels } from './tunnels';
import type { Organisation, Page, Session } from './wire';

type Account = NonNullable<Session['account']>;

const PLACES = [
  ['', 'Overview'],
  ['sockets', 'Sockets'],
  ['tunnels', 'Tunnels'],
  ['flows', 'Flows'],
  ['policies', 'Policies'],
  ['providers', 'Providers'],
  ['service-tokens', 'Service tokens'],
  ['ssh', 'SSH'],
  ['domains', 'Domains'],
  ['people', 'People'],
  ['tokens', 'Tokens'],
  ['edges', 'Edges'],
  ['catchment', 'Catchment'],
  ['audit', 'Audit'],
  ['account', 'Account'],
] as const;
/** The places of the owner of the installation. */
const OF_OWNER: readonly string[] = ['edges', 'catchment'];

/** What is at the path of the address. */
function Here({ isOwner }: { isOwner: boolean }) {
  const [first = '', second, third] = place.value.path.split('/').slice(1);
  const key = `${organisation.value} ${first} ${second ?? ''} ${third ?? ''}`;
  if (OF_OWNER.includes(first) && !isOwner) return <ForOwner key={key} title={PLACES.find(([at]) => at === first)![1]} />;
  switch (first) {
    case '':
      return <Overview key={key} isOwner={isOwner} />;
    case 'sockets':
      if (second === 'new') return <NewSocket key={key} />;
      if (second && third === 'plan') return <Plan key={key} id={second} />;
      return second ? <OneSocket key={key} id={second} /> : <Sockets key={key} />;
    case 'tunnels':
      return <Tunnels key={key} />;
    case 'flows':
      return <Flows key={key} />;
    case 'edges':
      return second ? <OneEdge key={key} id={second} /> : <Edges key={key} />;
    case 'policies':
      if (second === 'new') return <NewPolicy key={key} />;
      return second ? <OnePolicy key={key} id={second} /> : <Policies key={key} />;
    case 'providers':
      if (second === 'new') return <NewProvider key={key} />;
      return second ? <OneProvider key={key} name={second} /> : <Providers key={key} />;
    case 'service-tokens':
      return second ? <OneServiceToken key={key} id={second} /> : <ServiceTokens key={key} />;
    case 'ssh':
      return <Ssh key={key} />;
    case 'catchment':
      return <Catchment key={key} />;
    case 'people':
      return <People key={key} />;
    case 'tokens':
      return <Tokens key={key} />;
    case 'domains':
      return second ? <OneDomain key={key} name={second} /> : <Domains key={key} />;
    case 'audit':
      return <Audit key={key} />;
    case 'account':
      return <AccountPlace key={key} />;
    default:
      return (
        <Place key={key} title="No such page">
          <p>
            There is nothing at this address. <A to="/">To the overview</A>
          </p>
        </Place>
      );
  }
}

/** What others see of a place of the owner of the installation. */
const ForOwner = ({ title }: { title: string }) => (
  <Place title={title}>
    <p>
      {organisation.value
        ? 'This is about the installation and not about the organisation: choose your own organisation at the top, if you own the installation.'
        : 'This is for the owner of the installation.'}{' '}
      <A to="/">To the overview</A>
    </p>
  </Place>
);

/** The choice of the organisation, for those who belong to several. It is read again when it opens. */
function Organisations() {
  const loaded = useApi<Page<Organisation>>('/v1/organisations', memberships.value, 12);
  const all = loaded.is === 'there' ? loaded.value.items : [];
  const isLost = Boolean(organisation.value && all.length && !all.some(({ id }) => id === organisation.value));
  useEffect(() => {
    if (!isLost) return;
    chooseOrganisation('');
    say('You do not belong to the chosen organisation any more. This is your own.', true);
  }, [isLost]);
  if (all.length < 2) return null;
  return (
    <select
      class="organisation"
      aria-label="Organisation"
      onFocus={() => (memberships.value += 1)}
      onChange={(event) => {
        const chosen = all.find(({ id }) => id === event.currentTarget.value);
        chooseOrganisation(chosen?.own ? '' : event.currentTarget.value);
      }}
    >
      {all.map(({ id, name, role, own }) => (
        <option key={id} value={id} selected={own ? !organisation.value : id === organisation.value}>
          {plain(name)} ({role})
        </option>
      ))}
    </select>
  );
}

export function Frame({ account }: { account: Account }) {
  const first = place.value.path.split('/')[1] ?? '';
  const places = useRef<HTMLElement>(null);
  // On a narrow screen the places are a row that scrolls.
  useEffect(() => places.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }), [first]);
  // Edges are for the owner of the installation, who acts for the own organisation.
  const isOwner = account.owns_installation && !organisation.value;
  return (
    <>
      <a class="skip" href="#main">
        To the content
      </a>
      <header class="top">
        <Mark />
        <span class="name">Desk</span>
        <span class="soft wide-only">{location.hostname.replace(/^desk\./, '')}</span>
        <span class="fill" />
        <Organisations />
        <span class="soft wide-only">{plain(account.email)}</span>
        <ThemeButton />
        <button type="button" onClick={() => logOut().catch(complain)}>
          Log out
        </button>
      </header>
      <div class="desk">
        <nav ref={places} class="places" aria-label="Places">
          {PLACES.filter(([at]) => isOwner || !OF_OWNER.includes(at)).map(([at, label]) => (
            <A key={at} to={`/${at}`} {...(at === first ? { 'aria-current': 'page' as const } : {})}>
              {label}
            </A>
          ))}
        </nav>
        <main id="main" class="place" tabIndex={-1}>
          <div role="status">{!isReachable.value && <p class="note-line bad">{UNREACHABLE} The page shows what the server said last.</p>}</div>
          <Here isOwner={isOwner} />
        </main>
      </div>
    </>
  );
}
