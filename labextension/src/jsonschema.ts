/** A JSON schema, as far as pydantic's models of options need it. */
export interface ISchema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  metavar?: string;
  /** What is wanted, in words, often with examples: `hosts such as node1:4,node2:4`. */
  wanted?: string;
  flags?: string[];
  secrets?: boolean;
  anyOf?: ISchema[];
  allOf?: ISchema[];
  items?: ISchema;
  properties?: Record<string, ISchema>;
  additionalProperties?: boolean | ISchema;
  required?: string[];
  $ref?: string;
  $defs?: Record<string, ISchema>;
}
