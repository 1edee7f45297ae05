variable "sites" {
  description = "The sites, by the names of their regions: the router of the site, and how many edges it has if not `instances`."
  type = map(object({
    router    = string
    router_as = number
    role      = optional(string, "provider")
    bfd       = optional(bool, false)
    instances = optional(number)
  }))
}

variable "instances" {
  description = "How many edges a site has."
  type        = number
  default     = 2
}

variable "prefixes" {
  description = "The prefixes that all sites announce."
  type        = set(string)
}

variable "local_as" {
  description = "The autonomous system of the edges."
  type        = number
}

variable "min_sites" {
  description = "How many sites announce each prefix at least."
  type        = number
  default     = 1
}

variable "program" {
  description = "Where machines fetch the program, and its SHA-256 (`sha256sum sallyport`). Set one of `program`, `apt` and `installed`."
  type = object({
    url    = string
    sha256 = string
  })
  default = null
}

variable "apt" {
  description = "The apt repository of a release, and its key in OpenPGP, armored."
  type = object({
    url       = string
    key       = string
    suite     = optional(string)
    component = optional(string)
    version   = optional(string)
  })
  default = null
}

variable "installed" {
  description = "Whether the image of the machines has the program."
  type        = bool
  default     = null
}

variable "advertise" {
  description = "The addresses at which clients and other edges reach edges, by name: HOST:PORT."
  type        = map(string)
  default     = {}
}

variable "more" {
  description = "Further parts of the user data: texts that begin with #cloud-config or #!."
  type        = list(string)
  default     = []
}

variable "ephemeral_outputs" {
  description = "Leave it alone. Terraform takes an output as ephemeral only if a value that is ephemeral as a whole went into it."
  type        = bool
  default     = true
  ephemeral   = true
}
