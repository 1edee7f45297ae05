// The catchment: where networks land, what they lose, and the one change that would gain the most.
import { count, countOf, ms, plain } from '../parts/format';
import { command } from '../parts/shell';
import { query, useApi } from './api';
import { Await, Facts, Place, Section, Table, Time, Ways } from './parts';
import { A, place } from './router';
import type { CatchmentSuggestion, Landing, LandingPage, MeasurementPage } from './wire';
import { curl } from './ways';

const GROUPS = ['prefix', 'as', 'country', 'site'] as const;
type Group = (typeof GROUPS)[number];

const groupOf = (landing: Landing, by: Group): string =>
  ({ prefix: landing.prefix ?? '', as: landing.as == null ? 'not known' : `AS${landing.as}`, country: landing.country ?? 'not known', site: landing.site })[by];

export function Catchment() {
  const asked = place.value.query.get('by') ?? '';
  const by = GROUPS.find((group) => group === asked) ?? 'prefix';
  const loaded = useApi<LandingPage>(`/v1/catchment${query({ by, limit: '100' })}`, 0, 6);
  return (
    <Place title="Catchment">
      <nav class="bar" aria-label="Group by">
        {GROUPS.map((group) => (
          <A key={group} to={`/catchment?by=${group}`} {...(group === by ? { 'aria-current': 'page' as const } : {})}>
            by {group === 'as' ? 'AS' : group}
          </A>
        ))}
      </nav>
      <Await of={loaded}>
        {({ items, networks, has_more, frozen }) => (
          <>
            {frozen && <p class="note-line warn">Steering does not follow the catchment now: {plain(frozen)}</p>}
            <p class="soft" hidden={!networks}>
              Known: {countOf(networks, 'network')}. {has_more && 'Those that lose the most are shown.'}
            </p>
            <Table<Landing>
              label="Networks"
              rows={items}
              idOf={(landing) => `${groupOf(landing, by)} ${landing.site}`}
              empty="No request has been seen yet. Networks appear with the first requests to your edges."
              columns={[
                { head: 'Group', cell: (landing) => plain(groupOf(landing, by)) },
                { head: 'Lands at', cell: ({ site }) => plain(site) },
                { head: 'Requests', cell: ({ requests }) => count(Math.round(requests)) },
                { head: 'Round trip', cell: ({ mean_ms }) => ms(mean_ms) },
                { head: 'Nearer', cell: ({ better, better_ms }) => (better ? `${plain(better)}, ${ms(better_ms)}` : '') },
                { head: 'Lost', cell: ({ lost_ms }) => `${count(Math.round(lost_ms / 1000))} s` },
                { head: 'Seen', cell: ({ last_seen }) => <Time at={last_seen} /> },
              ]}
            />
          </>
        )}
      </Await>
      <Suggestion />
      <Measurements />
      <Ways
        of={[
          [curl('GET', `/v1/catchment?by=${by}`), command('sallyport catchment ls', ['--by', by])],
          [curl('GET', '/v1/catchment/suggestion'), 'sallyport catchment suggest'],
          [curl('GET', '/v1/catchment/measurements'), 'sallyport catchment measurements'],
        ]}
      />
    </Place>
  );
}

function Suggestion() {
  const loaded = useApi<CatchmentSuggestion>('/v1/catchment/suggestion', 0, 12);
  return (
    <Section title="The change that gains the most">
      <Await of={loaded}>
        {({ change }) =>
          change ? (
            <Facts
              of={[
                ['Change', plain(change.action)],
                ['Instead', plain(change.alternative ?? '')],
                ['Round trip', `${ms(change.before_ms)} now, ${ms(change.after_ms)} then`],
                ['Networks', `${count(change.networks)} measured, ${count(change.unmeasured)} not`],
              ]}
            />
          ) : (
            <p class="soft none">No change gains.</p>
          )
        }
      </Await>
    </Section>
  );
}

function Measurements() {
  const loaded = useApi<MeasurementPage>('/v1/catchment/measurements', 0, 6);
  return (
    <Section title="Measurements">
      <Await of={loaded}>
        {({ items }) => (
          <Table
            label="Measurements"
            rows={items}
            idOf={({ id }) => id}
            empty={<>Nothing was measured by pings yet. This command shows how: <code>sallyport catchment measure --help</code></>}
            columns={[
              { head: 'Started', cell: ({ started_at }) => <Time at={started_at} /> },
              { head: 'Address', cell: ({ address }) => plain(address) },
              { head: 'State', cell: ({ state, why }) => plain([state, why].filter(Boolean).join(': ')) },
              { head: 'Networks', cell: ({ landed, targets }) => `${count(landed)} of ${count(targets)}` },
            ]}
          />
        )}
      </Await>
    </Section>
  );
}
