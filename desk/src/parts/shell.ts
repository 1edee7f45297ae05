// Words of a shell's command line.

/** The text as one word of a POSIX shell. */
export const word = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A command of its words; what is missing is left out, with its option. A value is never taken for an option. */
export const command = (...parts: (string | [string, string | undefined])[]): string =>
  parts
    .flatMap((part) => {
      if (typeof part === 'string') return [part];
      const [option, value] = part;
      if (!value) return [];
      const isLikeOption = value.startsWith('-');
      if (!option) return [isLikeOption ? `-- ${word(value)}` : word(value)];
      return [`${option}${isLikeOption ? '=' : ' '}${word(value)}`];
    })
    .join(' ');
